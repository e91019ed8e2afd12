// `ingot bench` as a user types it: that it runs, and that its numbers add up. Times themselves are never tested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ir/plan/plan.h"
#include "tests/common/places.h"
#include "tests/common/program.h"

namespace ingot::tests {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kTiny = source_file("tests/tools/tiny.yaml");

ProgramResult ingot(std::vector<std::string> words) {
  words.insert(words.begin(), build_file("ingot"));
  return run_program(words, "", {{"INGOT_CACHE_DIR", build_file("test-cache")}});
}

double sum(const nlohmann::json& rows, const char* key) {
  double total = 0;
  for (const auto& row : rows) total += row.at(key).get<double>();
  return total;
}

TEST(Bench, NumbersAddUpAndAreThePlans) {
  const ScratchFolder folder;
  const std::string path = folder.file("tiny.plan");
  ASSERT_EQ(ingot({"compile", kTiny, "-o", path}).code, 0);
  const ProgramResult result = ingot({"bench", path, "--steps", "3", "--warmup", "1", "--threads", "1", "--library", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  const ir::Plan plan = ir::read_plan(path);
  const ir::Program& train = *plan.find_program("train");

  ASSERT_EQ(json["step_seconds"].size(), 3u);
  EXPECT_EQ(json["median_seconds"], json["step_seconds"][1]);
  EXPECT_EQ(json["tokens"], 10);
  ASSERT_EQ(json["calls"].size(), train.calls.size());
  double flops = 0, bytes = 0, products = 0;
  for (const ir::Call& call : train.calls) {
    flops += call.flops, bytes += call.bytes;
    if (call.kind == ir::CallKind::gemm) products += call.flops;
  }
  EXPECT_EQ(json["gemm_flops"], products);
  for (const char* rows : {"calls", "kernels", "kinds"}) {
    EXPECT_DOUBLE_EQ(sum(json[rows], "flops"), flops) << rows;
    EXPECT_DOUBLE_EQ(sum(json[rows], "bytes"), bytes) << rows;
    EXPECT_NEAR(sum(json[rows], "seconds"), json["calls_seconds"].get<double>(), 1e-9) << rows;
    EXPECT_EQ(sum(json[rows], "calls"), static_cast<double>(train.calls.size())) << rows;
  }
  EXPECT_GT(json["calls_seconds"], 0.0);
  EXPECT_LE(json["calls_seconds"], json["step_seconds"][0].get<double>())
      << "least times of parts, of no step less than the whole";
  EXPECT_GT(json["ceilings"]["copy_bytes_per_second"], 0.0);
  const double rate = json["ceilings"]["gemm_flops_per_second"]["f32"];
  for (const auto& row : json["kinds"]) {
    if (row["name"] != "gemm") continue;
    EXPECT_GT(row["library_seconds"], 0.0);
    EXPECT_DOUBLE_EQ(row["ceiling_seconds"], products / rate);
    EXPECT_DOUBLE_EQ(json["utilisation"], products / rate / json["median_seconds"].get<double>());
  }
}

TEST(Bench, CompilesAModelAndPrintsTables) {
  const ProgramResult result =
      ingot({"bench", kTiny, "width=16", "--program", "eval", "--steps", "2", "--warmup", "0", "--calls", "2"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("tiny @eval on cpu, f32, "));
  for (const char* part : {"\n  step       median ", "\n  tokens     ", "\n  products   ", "\n  ceilings   copy ", "\nkind ",
                           "\ngemm ", "\nkernel ", "\ncall "})
    EXPECT_THAT(result.out, HasSubstr(part));
}

// A region, a product, and a sum whose partials are added by a call of their own.
TEST(Bench, OneKernelOfAProgramAlone) {
  const std::map<std::string, std::vector<std::string>> kernels{
      {"lr.now", {"rows_"}}, {"head.weight.grad", {"gemm 300x64x10 TN bf16"}}, {"e", {}}, {"norm.2", {"rows_", "add_partials_"}}};
  for (const auto& [value, names] : kernels) {
    const ProgramResult result = ingot({"bench", kTiny, "vocab=300", "width=64", "--alone", value, "--precision", "bf16",
                                        "--steps", "2", "--warmup", "0", "--json"});
    if (names.empty()) {
      EXPECT_EQ(result.code, 1);
      EXPECT_THAT(result.err, HasSubstr("no op of @train makes a value 'e'"));
      continue;
    }
    ASSERT_EQ(result.code, 0) << value << ": " << result.err;
    const nlohmann::json json = nlohmann::json::parse(result.out);
    EXPECT_EQ(json["precision"], "bf16");
    ASSERT_EQ(json["kernels"].size(), names.size()) << value;
    for (const auto& row : json["kernels"]) {
      EXPECT_EQ(row["calls"], 1);
      EXPECT_TRUE(std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return row["name"].get<std::string>().starts_with(name);
      })) << row["name"];
    }
  }
}

TEST(Bench, OneKernelOfAPlanAlone) {
  const ScratchFolder folder;
  const std::string plan = folder.file("tiny.plan");
  ASSERT_EQ(ingot({"compile", kTiny, "-o", plan}).code, 0);
  const ProgramResult result = ingot({"bench", plan, "--alone", "lr.now", "--steps", "1", "--warmup", "0"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rows_"));
  EXPECT_EQ(ingot({"bench", plan, "--alone", "lr.now", "--op", "wkv7"}).code, 1);
  const ProgramResult view = ingot({"bench", source_file("models/mixer.yaml"), "batch=2", "time=16", "--alone", "logits.part"});
  EXPECT_EQ(view.code, 1);
  EXPECT_THAT(view.err, HasSubstr("computes nothing"));
}

TEST(Bench, OneOpAloneForwardAndGradient) {
  for (const char* precision : {"f32", "bf16", "f16"}) {
    const ProgramResult result = ingot({"bench", "--op", "wkv7", "batch=1", "time=96", "heads=1", "head=16", "--precision",
                                        precision, "--steps", "1", "--warmup", "0", "--json"});
    ASSERT_EQ(result.code, 0) << result.err;
    const nlohmann::json json = nlohmann::json::parse(result.out);
    ASSERT_EQ(json["kernels"].size(), 2u);
    EXPECT_THAT(json["kernels"][0]["name"].get<std::string>(), StartsWith("wkv7_"));
    EXPECT_THAT(json["kernels"][1]["name"].get<std::string>(), StartsWith("wkv7_grad_"));
    EXPECT_EQ(json["sizes"], "batch=1 head=16 heads=1 segments=0 time=96");
    EXPECT_EQ(json["checked_sizes"], "batch=1 head=16 heads=1 segments=0 time=80");
    EXPECT_EQ(json["shrunk"], true);
    EXPECT_EQ(json["errors"].size(), 8u) << "six gradients, two results";
    for (const auto& [name, error] : json["errors"].items()) {
      EXPECT_GT(error, 0.0) << name;
      EXPECT_LT(error, precision == std::string("bf16") ? 5e-3 : 2e-6) << name;
    }
  }
  EXPECT_THAT(ingot({"bench", "--op", "wkv8"}).err, HasSubstr("did you mean 'wkv7'?"));
}

TEST(Bench, TheOpAloneIsCutIntoSegmentsAsItsModelsAre) {
  const auto graph = [](const std::string& segments) {
    const ProgramResult result =
        ingot({"compile", source_file("models/ops/wkv7.yaml"), "--programs", "verify", "--stop-after", "configure", "--target",
               "cuda:sm_90", "--precision", "bf16", "batch=1", "time=65536", "heads=12", "segments=" + segments});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(graph("0"), HasSubstr("segments: 11}"));
  EXPECT_THAT(graph("1"), HasSubstr("segments: 1}"));
  EXPECT_THAT(graph("5"), HasSubstr("segments: 5}"));
  const ProgramResult none = ingot({"bench", "--op", "wkv7", "segments=-1"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("segments must be at least 1"));
}

TEST(Bench, MistakesAreTheUsers) {
  EXPECT_THAT(ingot({"bench", kTiny, "--alone", "logits.layer_norm.maen"}).err, HasSubstr("no op of @train makes a value"));
  const ProgramResult program = ingot({"bench", kTiny, "--program", "trian"});
  EXPECT_EQ(program.code, 1);
  EXPECT_THAT(program.err, HasSubstr("trian"));
  EXPECT_EQ(ingot({"bench", kTiny, "--steps", "0"}).code, 1);
}

}  // namespace
}  // namespace ingot::tests
