// Sessions on a plan written by hand: what goes in and out, what is refused, what poison and checks find.
#include "runtime/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "tests/runtime/bigram.h"
#include "tests/runtime/scratch_folder.h"

namespace ingot::runtime {
namespace {

using testing::HasSubstr;

HostTensor ids(std::vector<double> values, ir::Shape shape = {1, 4}) {
  return HostTensor::from_doubles({ir::DType::i32, shape}, values);
}

BigramOptions tiny() {
  BigramOptions o;
  o.vocab = 5;
  o.batch = 1;
  o.time = 4;
  return o;
}

std::unique_ptr<Session> open_tiny(SessionOptions options = {}) {
  options.threads = options.threads ? options.threads : 2;
  auto session = Session::open(bigram_plan(tiny()), options);
  session->initialise(7);
  return session;
}

double scalar(const HostTensor& t) { return t.to_doubles().at(0); }

TEST(Session, InitialisesAndPrepares) {
  auto session = open_tiny();
  const auto table = session->read_variable("table");
  EXPECT_NE(table.to_doubles()[3], 0);
  EXPECT_EQ(session->read_variable("table.copy").bytes, table.bytes);
  EXPECT_EQ(scalar(session->read_variable("lr")), 0.5);
  EXPECT_EQ(scalar(session->read_variable("step")), 0);
}

std::vector<double> train(Session& session, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    session.set_input("train", "tokens", ids({0, 1, 2, 3}));
    session.set_input("train", "targets", ids({1, 2, -100, 4}));
    session.run("train");
    EXPECT_EQ(scalar(session.output("train", "count")), 3);
    losses.push_back(scalar(session.output("train", "loss")));
  }
  return losses;
}

TEST(Session, TrainsAndCounts) {
  auto session = open_tiny();
  const auto losses = train(*session, 5);
  EXPECT_NEAR(losses[0], 3 * std::log(5.0), 1);
  EXPECT_LT(losses[4], losses[0]);
  EXPECT_EQ(scalar(session->read_variable("step")), 5);
}

TEST(Session, PoisonChecksAndTracesChangeNoBit) {
  auto plain = open_tiny();
  SessionOptions options;
  options.poison = options.trace = options.check_nan = true;
  auto watched = open_tiny(options);
  EXPECT_EQ(train(*plain, 5), train(*watched, 5));
  EXPECT_EQ(plain->read_variable("table").bytes, watched->read_variable("table").bytes);
  const auto trace = nlohmann::json::parse(watched->trace().json());
  EXPECT_EQ(trace["traceEvents"].size(), 10u + 6 + 1);  // two calls a step; init of six variables, one copy
  EXPECT_EQ(trace["traceEvents"].back()["name"], "update");
  EXPECT_EQ(trace["traceEvents"].back()["args"]["program"], "train");
}

// A planted fault: the loss is added to scratch that nothing has set. Fresh memory is zero, so only poison shows it.
ir::Plan plan_that_reads_scratch() {
  ir::Plan plan = bigram_plan(tiny());
  const auto index = static_cast<int>(plan.find_program("train") - plan.programs.data());
  ir::Program& train_program = plan.programs[static_cast<size_t>(index)];
  for (ir::Buffer& b : plan.buffers) {
    if (b.program == index && b.role == ir::BufferRole::temp) b.last = 2;
  }
  ir::Buffer scratch;
  scratch.name = "train/scratch";
  scratch.type = {ir::DType::boolean, {4}};
  scratch.role = ir::BufferRole::workspace;
  scratch.program = index;
  scratch.offset = plan.arenas[0].bytes;
  scratch.bytes = 4;
  scratch.first = 1;
  scratch.last = 2;
  plan.arenas[0].bytes += ir::kBufferAlignment;
  plan.buffers.push_back(scratch);
  const auto id = static_cast<ir::BufferId>(plan.buffers.size() - 1);
  ir::Call add = train_program.calls[0];
  add.kernel = "gather";
  add.args = {train_program.calls[1].args[6], {id, ir::AccessMode::inout}};
  add.sizes = {1, 0};
  train_program.calls[1].args[6].buffer = id;
  train_program.calls.insert(train_program.calls.begin() + 1, add);
  return plan;
}

TEST(Session, PoisonShowsWhatWasNeverWritten) {
  for (const bool poison : {false, true}) {
    SessionOptions options;
    options.poison = poison;
    auto session = Session::open(plan_that_reads_scratch(), options);
    session->initialise(7);
    EXPECT_EQ(std::isnan(train(*session, 1)[0]), poison);
  }
}

TEST(Session, CheckNanNamesTheCall) {
  SessionOptions options;
  options.check_nan = true;
  auto session = open_tiny(options);
  HostTensor table = session->read_variable("table");
  auto values = table.to_doubles();
  values[7] = NAN;
  session->write_variable("table", HostTensor::from_doubles(table.type, values));
  EXPECT_THAT(error_of([&] { session->run("prepare"); }),
              HasSubstr("program prepare: table.copy (copy) wrote nan at element 7 of table.copy f32[5, 5]"));
}

TEST(Session, ConvertsWhatItIsGiven) {
  auto session = open_tiny();
  session->write_variable("lr", HostTensor::from_doubles({ir::DType::bf16, {}}, {0.25}));
  EXPECT_EQ(scalar(session->read_variable("lr")), 0.25);
  session->set_input("decode", "tokens", HostTensor::from_doubles({ir::DType::i64, {1, 1}}, {3}));
  session->run("decode");
  EXPECT_EQ(session->output("decode", "logits").type.text(), "f32[1, 1, 5]");
}

TEST(Session, RefusesWhatDoesNotFit) {
  auto session = open_tiny();
  EXPECT_THAT(error_of([&] {
                session->set_input("train", "tokens", ids({0, 1, 5, 2}));
              }),
              HasSubstr("input tokens of program train: 5 at position [0, 2] is outside 0 .. 4"));
  EXPECT_THAT(error_of([&] {
                session->set_input("train", "tokens", ids({0, -100, 1, 2}));
              }),
              HasSubstr("-100 at position [0, 1]"));
  EXPECT_THAT(error_of([&] { session->set_input("train", "targets", ids({0, -100, 1, 2})); }), testing::Eq("no error"));
  EXPECT_THAT(error_of([&] {
                session->set_input("train", "tokens", ids({0, 1}, {1, 2}));
              }),
              HasSubstr("input tokens of program train is i32[1, 4], the value given is i32[1, 2]"));
  EXPECT_THAT(error_of([&] {
                session->set_input("train", "token", ids({0, 1, 2, 2}));
              }),
              HasSubstr("no input of program train named 'token'; did you mean 'tokens'?"));
  EXPECT_THAT(error_of([&] { session->run("trian"); }), HasSubstr("no program 'trian'; did you mean 'train'?"));
  EXPECT_THAT(error_of([&] { session->read_variable("tabel"); }), HasSubstr("did you mean 'table'?"));
  EXPECT_THAT(error_of([&] {
                session->write_variable("lr", HostTensor({ir::DType::f32, {1}}));
              }),
              HasSubstr("variable lr is f32[], the value given is f32[1]"));
}

TEST(Session, RefusesForeignMachines) {
  ir::Plan plan = bigram_plan(tiny());
  plan.target_features = "sse2 avx9000_turbo";
  EXPECT_THROW(Session::open(plan, {}), ir::MachineError);
  EXPECT_THAT(error_of([&] { Session::open(plan, {}); }),
              HasSubstr("compiled for a CPU with avx9000_turbo, which this one lacks"));
  plan.target_features = "";
  plan.target = "abacus";
  EXPECT_THAT(error_of([&] { Session::open(plan, {}); }), HasSubstr("this plan was made for abacus"));
  plan.target = "cpu";
  plan.arenas[0].bytes = int64_t{1} << 50;
  EXPECT_THAT(error_of([&] { Session::open(plan, {}); }), HasSubstr("this plan needs 1024.0 TiB of memory"));
}

TEST(Session, RefusesImagesThatAreNone) {
  ir::Plan plan = bigram_plan(tiny());
  plan.kernels[0].symbol = "absent";
  EXPECT_THAT(error_of([&] { Session::open(plan, {}); }), HasSubstr("has no function 'absent'"));
  plan.files["image.so"] = "not an object";
  EXPECT_THROW(Session::open(plan, {}), ir::MachineError);
}

// Two sessions with different images at once, and one after the other: neither may get the other's code.
TEST(Session, ImagesAreNotMixedUp) {
  for (int i = 0; i < 3; ++i) {
    BigramOptions small = tiny(), large = tiny();
    large.vocab = 9;
    auto a = Session::open(bigram_plan(small), {});
    auto b = Session::open(bigram_plan(large), {});
    a->initialise(1);
    b->initialise(1);
    for (Session* s : {a.get(), b.get()}) {
      s->set_input("decode", "tokens", ids({2}, {1, 1}));
      s->run("decode");
    }
    EXPECT_EQ(a->output("decode", "logits").type.elements(), 5);
    EXPECT_EQ(b->output("decode", "logits").type.elements(), 9);
  }
}

TEST(Session, ThreadsAreChecked) {
  SessionOptions options;
  options.threads = -1;
  EXPECT_THAT(error_of([&] { Session::open(bigram_plan(tiny()), options); }), HasSubstr("-1 threads"));
}

}  // namespace
}  // namespace ingot::runtime
