// The safetensors reader against files with every fault, the writer against its own reader, and weights into a session.
#include "runtime/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>

#include "ir/base/error.h"
#include "runtime/weights.h"
#include "tests/runtime/bigram.h"
#include "tests/runtime/scratch_folder.h"

namespace ingot::runtime {
namespace {

using testing::HasSubstr;

std::string file_text(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

std::string refusal(const std::string& bytes) {
  ScratchFolder folder;
  const std::string path = folder.write("x.safetensors", bytes);
  return error_of([&] { Safetensors file(path); });
}

TEST(Safetensors, EveryDtypeComesBack) {
  ScratchFolder folder;
  std::map<std::string, HostTensor> tensors;
  for (ir::DType t : {ir::DType::f32, ir::DType::bf16, ir::DType::f16, ir::DType::i32, ir::DType::i64, ir::DType::boolean}) {
    tensors[std::string(ir::dtype_name(t))] = HostTensor::from_doubles({t, {2, 3}}, {0, 1, -2, 3.5, 1e4, 7});
  }
  tensors["empty"] = HostTensor({ir::DType::f32, {0, 4}});
  tensors["scalar"] = HostTensor::from_doubles({ir::DType::f32, {}}, {2.5});
  const std::string path = folder.path("a.safetensors");
  const WrittenFile written = write_safetensors(path, tensors, {{"step", "12"}, {"quote", "\"x\"\n"}});
  EXPECT_EQ(written.checksum, file_checksum(path));
  EXPECT_EQ(written.bytes, static_cast<int64_t>(slurp(path).size()));
  const Safetensors file(path);
  EXPECT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.metadata().at("quote"), "\"x\"\n");
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(file.read(name, tensor.type.dtype).bytes, tensor.bytes) << name;
    EXPECT_EQ(file.find(name).shape, tensor.type.shape);
  }
  EXPECT_THAT(file.read("f32", ir::DType::i32).to_doubles(), testing::ElementsAre(0, 1, -2, 3, 10000, 7));
}

TEST(Safetensors, ReadsDoublesAndBytes) {
  ScratchFolder folder;
  const double values[] = {1.0 / 3, -2};
  std::string data(reinterpret_cast<const char*>(values), 16);
  const std::string path = folder.write(
      "d.safetensors",
      file_text(
          R"({"x":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},"b":{"dtype":"U8","shape":[1],"data_offsets":[16,17]}})",
          data + "\xc8"));
  const Safetensors file(path);
  EXPECT_THAT(file.read_doubles("x"), testing::ElementsAre(1.0 / 3, -2));
  EXPECT_EQ(file.read("x", ir::DType::f32).to_doubles()[0], static_cast<double>(1.0f / 3));
  EXPECT_THAT(file.read_doubles("b"), testing::ElementsAre(200));
  EXPECT_THAT(error_of([&] { file.find("y"); }), HasSubstr("d.safetensors: error: no tensor named \"y\""));
}

TEST(Safetensors, Faults) {
  const std::string tensor = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  EXPECT_THAT(refusal(""), HasSubstr("not a safetensors file: 0 bytes"));
  EXPECT_THAT(refusal("GIF89a__picture"), HasSubstr("not a safetensors file"));
  EXPECT_THAT(refusal(file_text("{}").substr(0, 9)), HasSubstr("truncated: a header of 2 bytes in a file of 9"));
  EXPECT_THAT(refusal(file_text("not json")), HasSubstr("its header is no JSON object"));
  EXPECT_THAT(refusal(file_text("[1]")), HasSubstr("its header is no JSON object"));
  EXPECT_THAT(refusal(file_text("{\"a\":{" + tensor + "}}", "1234567")),
              HasSubstr("truncated: tensor \"a\" ends at byte 8 of the data, there are 7"));
  EXPECT_THAT(refusal(file_text("{\"a\":3}")), HasSubstr("tensor \"a\" is no object"));
  EXPECT_THAT(refusal(file_text(R"({"a":{"dtype":"F8","shape":[2],"data_offsets":[0,8]}})")), HasSubstr("element type \"F8\""));
  EXPECT_THAT(refusal(file_text(R"({"a":{"shape":[2],"data_offsets":[0,8]}})")), HasSubstr("tensor \"a\" has no \"dtype\""));
  EXPECT_THAT(refusal(file_text(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})")), HasSubstr("-2 is no size"));
  EXPECT_THAT(refusal(file_text(R"({"a":{"dtype":"F32","shape":[99999999,99999999,99999999],"data_offsets":[0,8]}})")),
              HasSubstr("but has 8 bytes"));
  EXPECT_THAT(refusal(file_text(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})")), HasSubstr("but has -8 bytes"));
  EXPECT_THAT(refusal(file_text("{\"a\":{" + tensor + R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678")),
              HasSubstr("tensors \"a\" and \"b\" overlap"));
  EXPECT_THAT(error_of([] { Safetensors file("/nowhere/x.safetensors"); }),
              HasSubstr("cannot read /nowhere/x.safetensors: No such file"));
  EXPECT_THAT(error_of([] { Safetensors file("/tmp"); }), HasSubstr("cannot read /tmp: Is a directory"));
}

TEST(Safetensors, EveryTruncationIsRefusedOrComplete) {
  ScratchFolder folder;
  const std::string path = folder.path("t.safetensors");
  write_safetensors(path, {{"a", HostTensor::from_doubles({ir::DType::f32, {3}}, {1, 2, 3})}});
  const std::string whole = slurp(path);
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(refusal(whole.substr(0, n)), "no error") << n;
  EXPECT_EQ(refusal(whole), "no error");
}

TEST(Files, ShrinkingUnderTheReaderIsAnError) {
  ScratchFolder folder;
  const std::string path = folder.write("data", std::string(100, 'x'));
  const InputFile file(path);
  std::filesystem::resize_file(path, 40);
  char buffer[100];
  EXPECT_THAT(error_of([&] { file.read(20, buffer, 60); }),
              HasSubstr("the file has become shorter: 100 bytes when it was opened, 40 now"));
  std::filesystem::remove(path);
  file.read(0, buffer, 40);  // unlinked files stay readable
}

// A disk that fills up: a limit on file sizes makes write fail in the same way.
TEST(Files, AFailedWriteLeavesNothing) {
  ScratchFolder folder;
  const std::string path = folder.write("w.safetensors", "old contents");
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] { write_safetensors(path, {{"a", HostTensor({ir::DType::f32, {100, 100}})}}); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("cannot write " + path + ": File too large"));
  EXPECT_EQ(slurp(path), "old contents");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Files, UnwritableFoldersAreOneSentence) {
  ScratchFolder folder;
  const std::string file = folder.write("file", "x");
  EXPECT_THAT(error_of([&] { write_file(file + "/below", "text"); }), HasSubstr("below: Not a directory"));
  EXPECT_THAT(error_of([&] { make_folders(file + "/below"); }), HasSubstr("cannot make the folder " + file + "/below"));
}

TEST(Files, ChecksumDoesNotDependOnTheCuts) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  Checksum whole, cut;
  whole.add(text.data(), text.size());
  for (size_t at = 0, n = 1; at < text.size(); at += n, n = n % 13 + 1) cut.add(text.data() + at, std::min(n, text.size() - at));
  EXPECT_EQ(whole.text(), cut.text());
  for (size_t flip : {0u, 500u, 999u}) {
    std::string other = text;
    other[flip] = static_cast<char>(other[flip] ^ 1);
    Checksum sum;
    sum.add(other.data(), other.size());
    EXPECT_NE(sum.text(), whole.text());
  }
}

BigramOptions tiny() {
  BigramOptions o;
  o.vocab = 3;
  return o;
}

HostTensor table(double value, ir::Shape shape = {3, 3}) {
  const ir::Type type{ir::DType::f32, std::move(shape)};
  return HostTensor::from_doubles(type, std::vector<double>(static_cast<size_t>(type.elements()), value));
}

TEST(Weights, LoadThenPrepare) {
  ScratchFolder folder;
  auto session = Session::open(bigram_plan(tiny()), {});
  session->initialise(1);
  for (const std::string prefix : {"", "init.", "param."}) {
    const double value = static_cast<double>(prefix.size());
    write_safetensors(folder.path("w"), {{prefix + "table", table(value)}, {prefix + "old.thing", table(1)}});
    EXPECT_EQ(load_weights(*session, Safetensors(folder.path("w"))).loaded, 1);
    EXPECT_EQ(session->read_variable("table.copy").to_doubles()[8], value);
  }
}

TEST(Weights, EveryMismatchIsListedAndNothingIsWritten) {
  ScratchFolder folder;
  auto session = Session::open(bigram_plan(tiny()), {});
  session->initialise(1);
  const auto before = session->read_variable("table").bytes;
  write_safetensors(folder.path("shape"), {{"table", table(1, {3, 4})}, {"more", table(2)}});
  const std::string error = error_of([&] { load_weights(*session, Safetensors(folder.path("shape"))); });
  EXPECT_THAT(error, HasSubstr("does not fit the model: 0 of 1 parameters missing, 1 of another shape, 1 tensors extra"));
  EXPECT_THAT(error, HasSubstr("shape: table is F32[3, 4] in the file, f32[3, 3] in the model"));
  EXPECT_THAT(error, HasSubstr("extra: more F32[3, 3] belongs to no parameter"));
  write_safetensors(folder.path("none"), {{"more", table(2)}});
  EXPECT_THAT(error_of([&] { load_weights(*session, Safetensors(folder.path("none"))); }), HasSubstr("missing: table f32[3, 3]"));
  EXPECT_EQ(session->read_variable("table").bytes, before);
  const LoadReport partial = load_weights(*session, Safetensors(folder.path("shape")), true);
  EXPECT_EQ(partial.loaded, 0);
  EXPECT_EQ(partial.mismatched, 1);
  EXPECT_EQ(partial.extra, 1);
}

}  // namespace
}  // namespace ingot::runtime
