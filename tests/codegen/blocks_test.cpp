// Blocks nobody wrote a kernel for: what their kernels move against what must move, and that names, order and head size do not
// decide what is fused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "codegen/compile.h"
#include "ir/graph/interpret.h"
#include "ir/graph/op_def.h"
#include "models/loader.h"
#include "passes/fusion_groups.h"
#include "passes/storage.h"
#include "passes/traffic.h"
#include "runtime/session.h"
#include "tests/codegen/batched_target.h"
#include "tests/common/random_graph.h"

namespace ingot::codegen {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;
using Lines = std::vector<std::string>;

struct Block {
  Lines params, graph;
};

// A norm, `mixes` lerps with the row before, a product of each, and what `combine` makes of the products p0, p1, ...
Block mixer(int mixes, const std::string& norm, const std::string& combine) {
  Block block;
  block.params = {"ln.weight: f32[width] = 1", "out.weight: f32[width, width] = orthogonal(1)"};
  block.graph.push_back("h: " + norm);
  block.graph.push_back("dx: shift(h) - h");
  for (int i = 0; i < mixes; ++i) {
    block.params.push_back(fmt::format("m{}: f32[1, 1, width] = 0.5", i));
    block.params.push_back(fmt::format("w{}.weight: f32[width, width] = orthogonal(1)", i));
    block.graph.push_back(fmt::format("x{0}: h + dx * m{0}", i));
    block.graph.push_back(fmt::format("p{0}: linear(x{0}, w{0}.weight)", i));
  }
  block.graph.push_back("c: " + combine);
  block.graph.push_back("y: x + linear(c, out.weight)");
  return block;
}

const char* const kRms = "rms_norm(x, ln.weight, eps=1e-5)";

Block layer_normed(int mixes, const std::string& combine) {
  Block block = mixer(mixes, "layer_norm(x, ln.weight, ln.bias, eps=1e-5)", combine);
  block.params.push_back("ln.bias: f32[width] = 0");
  return block;
}

Block with_heads() {
  Block block = mixer(3, kRms, "reshape(q * sum(q * r, axis=-1, keep=true), [batch, time, width]) * sigmoid(p2)");
  const auto combine = block.graph.end() - 2;
  block.graph.insert(combine, {"q: l2_norm(reshape(p0, [batch, time, heads, head]), eps=1e-6)",
                               "r: reshape(p1 * tanh(p2), [batch, time, heads, head])"});
  return block;
}

Block two_norms() {
  Block block =
      mixer(3, "layer_norm(rms_norm(x, first.weight, eps=1e-5), ln.weight, ln.bias, eps=1e-5)", "p0 * sigmoid(p1) + p2");
  block.params.push_back("ln.bias: f32[width] = 0");
  block.params.push_back("first.weight: f32[width] = 1");
  return block;
}

std::string yaml(const Block& block) {
  std::string text =
      "model: made_up\nconfig:\n  vocab: 512\n  layers: 3\n  width: 1536\n  head: 64\n  heads: width / head\n  batch: 4\n"
      "  time: 2048\n  stacked: cycle(layers, block)\n"
      "train:\n  lr: 1e-3\n"
      "inputs:\n  tokens: i32[batch, time] in 0 .. vocab - 1\n  targets: i32[batch, time] in 0 .. vocab - 1 or -100\n"
      "params:\n  emb.weight: f32[vocab, width] = normal(0, 1)\n  head.weight: f32[vocab, width] = orthogonal(1)\n"
      "blocks:\n  block:\n    in: x\n    out: y\n    params:\n";
  for (const std::string& line : block.params) text += "      " + line + "\n";
  text += "    graph:\n";
  for (const std::string& line : block.graph) text += "      - " + line + "\n";
  text +=
      "stack:\n  blocks: stacked\n  prefix: blocks.{layer}\n  carry: x\n"
      "graph:\n  - e: embedding(tokens, emb.weight)\n  - last: stack(e)\n  - logits: linear(last, head.weight)\n"
      "loss: cross_entropy(logits, targets, ignore=-100)\n"
      "optimizer:\n  rule: adamw(lr, 0.9, 0.99, 1e-8, 0)\n  schedule: constant(lr)\n  groups:\n"
      "    - {match: \"*\", lr: 1, decay: 0}\n";
  // `heads` is for blocks that have heads: an unused key is a mistake.
  if (text.find("heads,") == std::string::npos) {
    for (const char* line : {"  head: 64\n", "  heads: width / head\n"}) text.erase(text.find(line), std::string(line).size());
  }
  return text;
}

struct Programs {
  Graph core, fused;
};

Programs programs(const Block& block, std::vector<std::pair<std::string, std::string>> overrides = {},
                  const std::string& precision = "bf16") {
  models::LoadOptions load;
  load.overrides = std::move(overrides);
  models::LoadedModel model = models::load_model_text(yaml(block), "made_up.yaml", load);
  CompileOptions options;
  options.precision = precision;
  std::vector<passes::PassStep> before = passes::parse_pipeline(program_pipeline("train", options)), after;
  const auto fuse = std::find_if(before.begin(), before.end(), [](const auto& step) { return step.info->name == "fuse"; });
  after.assign(fuse, fuse + 1);
  before.erase(fuse, before.end());
  Graph core = passes::run_pipeline(model.module.graph("loss"), model.module, before);
  Graph fused = passes::run_pipeline(core, model.module, after);
  return {std::move(core), std::move(fused)};
}

// ---------------------------------------------------------------- what must move

// Bytes that inputs, outputs and operands of gemms force through kernels, however ops are grouped: what a gemm made is read once
// for each kernel that must be one of its own (a gemm stands between them); what a gemm reads is written; what is needed again
// behind a gemm is written and read.
class Forced {
 public:
  Forced(const Graph& graph, const passes::Storage& storage)
      : graph_(graph), storage_(storage), ops_(graph.ops().size()), before_(ops_, std::vector<bool>(ops_)), behind_(before_) {
    for (OpId id = 0; id < ops_; ++id) {
      for (ValueId operand : graph.op(id).operands) {
        if (operand == kNone) continue;
        const OpId maker = graph.value(operand).op;
        before_[id][maker] = true;
        for (OpId k = 0; k < maker; ++k) {
          before_[id][k] = before_[id][k] || before_[maker][k];
          behind_[id][k] = behind_[id][k] || behind_[maker][k];
        }
      }
      if (!row_op(id) && !storage.along(id)) behind_[id] = before_[id];
    }
  }

  double bytes() const {
    double total = 0;
    for (ValueId value = 0; value < graph_.values().size(); ++value) {
      const OpId maker = graph_.value(value).op;
      if (storage_.along(maker) || graph_.op(maker).phase == ir::Phase::optimizer || !has_rows(graph_.type(value).shape))
        continue;
      total += static_cast<double>(storage_.bytes(value)) * times_moved(value, maker);
    }
    return total;
  }

 private:
  bool row_op(OpId id) const {
    const ir::Lowering& lowering = graph_.op(id).def->lowering;
    return std::holds_alternative<ir::ScalarLowering>(lowering) || std::holds_alternative<ir::ReduceLowering>(lowering);
  }
  bool has_rows(const ir::Shape& shape) const {
    int64_t product = 1;
    for (int64_t size : shape) {
      product *= size;
      if (product >= storage_.options().rows) return product == storage_.options().rows && shape.back() > 1;
    }
    return false;
  }
  static bool forward(const Op& op) { return op.phase == ir::Phase::forward; }

  // Two kernels because of what stands between, or because one is the backward's.
  bool apart(OpId first, OpId second) const {
    return behind_[second][first] || forward(graph_.op(first)) != forward(graph_.op(second));
  }

  int times_moved(ValueId value, OpId maker) const {
    std::vector<OpId> readers;
    bool written = false;
    for (OpId id = maker + 1; id < ops_; ++id) {
      if (storage_.along(id)) continue;
      for (ValueId operand : graph_.op(id).operands) {
        if (operand == kNone || storage_.base(operand) != value) continue;
        if (!row_op(id)) {
          written = true;
        } else if (!row_op(maker) || apart(maker, id)) {
          readers.push_back(id);
        }
        break;
      }
    }
    const int reads = longest_chain(readers);
    return reads + (row_op(maker) && (written || reads > 0));
  }

  int longest_chain(const std::vector<OpId>& ops) const {
    std::vector<int> length(ops.size(), 1);
    int longest = 0;
    for (size_t i = 0; i < ops.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (apart(ops[k], ops[i])) length[i] = std::max(length[i], length[k] + 1);
      }
      longest = std::max(longest, length[i]);
    }
    return longest;
  }

  const Graph& graph_;
  const passes::Storage& storage_;
  const size_t ops_;
  std::vector<std::vector<bool>> before_, behind_;  ///< [op][earlier op]: leads to it; leads to it through a gemm or kernel
};

struct Moved {
  double forced, moved;
};
Moved moved(const Block& block, const std::string& layers) {
  const Programs made = programs(block, {{"layers", layers}});
  const passes::Storage storage(made.core, {ir::DType::bf16, passes::preferred_rows(made.core), {}});
  const passes::Traffic traffic = passes::count_traffic(made.fused);
  return {Forced(made.core, storage).bytes(), traffic.forward + traffic.backward};
}

struct Made {
  std::string name;
  Block block;
};
void PrintTo(const Made& made, std::ostream* out) { *out << made.name; }

std::vector<Made> made_up() {
  return {{"three_mixes", layer_normed(3, "p0 * sigmoid(p1) + p2")},
          {"four_mixes", layer_normed(4, "p0 * sigmoid(p1) + p2 * p3")},
          {"five_mixes", layer_normed(5, "p0 * sigmoid(p1) + p2 * tanh(p3) - p4")},
          {"six_mixes", layer_normed(6, "p0 * sigmoid(p1) + p2 * p3 + exp(-square(p4)) * p5")},
          {"seven_mixes", layer_normed(7, "p0 * sigmoid(p1) + p2 * p3 + p4 * p5 * p6")},
          {"eight_mixes", layer_normed(8, "p0 * sigmoid(p1) + p2 * p3 + p4 * p5 + p6 * silu(p7)")},
          {"rms", mixer(4, kRms, "p0 * sigmoid(p1) + p2 * p3")},
          {"extra_gate", mixer(4, kRms, "(p0 * sigmoid(p1) + p2) * silu(p3) * sigmoid(p3)")},
          {"heads", with_heads()},
          {"two_norms", two_norms()}};
}

class MadeUpBlocks : public ::testing::TestWithParam<Made> {};

// A layer in the middle is what one more layer adds.
TEST_P(MadeUpBlocks, MoveLittleMoreThanTheyMust) {
  const Moved less = moved(GetParam().block, "3"), more = moved(GetParam().block, "4");
  const double forced = more.forced - less.forced, now = more.moved - less.moved;
  EXPECT_LE(now, 1.1 * forced) << fmt::format("{:.1f} MB forced, {:.1f} moved", forced / 1e6, now / 1e6);
  EXPECT_GE(now, 0.8 * forced) << fmt::format("{:.1f} MB forced, {:.1f} moved: is the bound one?", forced / 1e6, now / 1e6);
}

// ---------------------------------------------------------------- numbers

// Fused is unfused to the last bit.
TEST_P(MadeUpBlocks, KeepTheirNumbers) {
  const std::vector<std::pair<std::string, std::string>> small = {
      {"layers", "2"}, {"width", "128"}, {"batch", "2"}, {"time", "5"}, {"vocab", "11"}};
  const Programs made = programs(GetParam().block, small, "f32");
  tests::Random random(3);
  const auto tokens = [&](std::map<std::string, ir::Tensor> inputs) {
    for (auto& [name, tensor] : inputs) {
      for (double& x : tensor.data) x = static_cast<double>(random.below(11));
    }
    return inputs;
  };
  const auto inputs = tokens(tests::random_inputs(made.core, random));
  const auto variables = tests::random_variables(made.core, random, 0.1, 1);
  const ir::InterpretResult want = ir::interpret(made.core, inputs, variables),
                            have = ir::interpret(made.fused, inputs, variables);
  ASSERT_EQ(want.updates.size(), have.updates.size());
  EXPECT_EQ(want.outputs.at("loss").data, have.outputs.at("loss").data);
  for (const auto& [name, tensor] : want.updates) EXPECT_EQ(tensor.data, have.updates.at(name).data) << name;
}

double distance(const std::vector<double>& have, const std::vector<double>& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (have[i] - want[i]) * (have[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(difference / size);
}

// As the CPU runs them, fused and not fused: both are what the interpreter says in double.
TEST_P(MadeUpBlocks, RunOnTheCpu) {
  models::LoadOptions load;
  load.overrides = {{"layers", "2"}, {"width", "128"}, {"batch", "2"}, {"time", "5"}, {"vocab", "11"}};
  const models::LoadedModel model = models::load_model_text(yaml(GetParam().block), "made_up.yaml", load);
  CompileOptions fused, apart;
  fused.programs = apart.programs = {"verify"};
  apart.pipeline.disable = {"fuse"};
  ir::Module module = model.module;
  const Graph meaning = build_program(module, "verify", apart);
  tests::Random random(3);
  auto inputs = tests::random_inputs(meaning, random);
  for (auto& [name, tensor] : inputs) {
    for (double& x : tensor.data) x = static_cast<double>(random.below(11));
  }
  const auto variables = tests::random_variables(meaning, random, -0.3, 0.3);
  const auto outputs = [&](const CompileOptions& options) {
    const auto session = runtime::Session::open(compile(model.module, *ingot::testing::batched_cpu_target(), options));
    for (const auto& [name, tensor] : variables)
      session->write_variable(name, runtime::HostTensor::from_doubles(tensor.type, tensor.data));
    session->run("prepare");
    for (const auto& [name, tensor] : inputs)
      session->set_input("verify", name, runtime::HostTensor::from_doubles(tensor.type, tensor.data));
    session->run("verify");
    std::map<std::string, std::vector<double>> all;
    for (const ir::Output& output : meaning.outputs()) all[output.name] = session->output("verify", output.name).to_doubles();
    return all;
  };
  const ir::InterpretResult want = ir::interpret(meaning, inputs, variables);
  EXPECT_GT(want.outputs.size(), 8u);
  for (const CompileOptions& options : {fused, apart}) {
    const auto have = outputs(options);
    for (const auto& [name, tensor] : want.outputs)
      EXPECT_LE(distance(have.at(name), tensor.data), 1e-5) << name << (options.pipeline.disable.empty() ? ", fused" : ", apart");
  }
}

// ---------------------------------------------------------------- names and order

// Kernels without their names: phase, ops by name and count, operands and results; how many there are of each.
std::map<std::string, int> kernels(const Graph& fused) {
  std::map<std::string, int> found;
  for (const Op& op : fused.ops()) {
    if (!op.region) continue;
    std::map<std::string, int> inside;
    for (const Op& inner : op.region->ops()) ++inside[inner.def->name];
    std::string text = fmt::format("{} {} in, {} out:", ir::phase_name(op.phase), op.operands.size(), op.results.size());
    for (const auto& [name, count] : inside) text += fmt::format(" {} {}", count, name);
    ++found[text];
  }
  return found;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

TEST_P(MadeUpBlocks, NamesDoNotCount) {
  Block renamed = GetParam().block;
  for (Lines* lines : {&renamed.params, &renamed.graph}) {
    for (std::string& line : *lines) {
      for (int i = 0; i < 8; ++i) {
        line = replaced(line, fmt::format("x{}", i), fmt::format("zebra{}", 9 - i));
        line = replaced(line, fmt::format("p{}", i), fmt::format("quagga{}", i));
        line = replaced(line, fmt::format("m{}", i), fmt::format("a{}b", i));
        line = replaced(line, fmt::format("w{}.", i), fmt::format("k{}.", i));
      }
      line = replaced(line, "ln.", "zz.");
    }
  }
  EXPECT_EQ(kernels(programs(GetParam().block).fused), kernels(programs(renamed).fused));
}

TEST_P(MadeUpBlocks, OrderOfIndependentLinesDoesNotCount) {
  Block turned = GetParam().block;
  std::vector<size_t> mixes, products;
  for (size_t i = 0; i < turned.graph.size(); ++i) {
    const std::string& line = turned.graph[i];
    if (line[0] == 'x' && line[2] == ':') mixes.push_back(i);
    if (line[0] == 'p' && line[2] == ':') products.push_back(i);
  }
  ASSERT_GE(mixes.size(), 3u);
  // All mixes first, the last one first; then the products.
  Lines lines;
  for (auto at = mixes.rbegin(); at != mixes.rend(); ++at) lines.push_back(turned.graph[*at]);
  for (auto at = products.rbegin(); at != products.rend(); ++at) lines.push_back(turned.graph[*at]);
  std::copy(lines.begin(), lines.end(), turned.graph.begin() + static_cast<std::ptrdiff_t>(mixes.front()));
  std::reverse(turned.params.begin(), turned.params.end());
  EXPECT_EQ(kernels(programs(GetParam().block).fused), kernels(programs(turned).fused));
}

INSTANTIATE_TEST_SUITE_P(Fusion, MadeUpBlocks, ::testing::ValuesIn(made_up()), [](const auto& made) { return made.param.name; });

TEST(MadeUpBlock, HeadSizeDoesNotCount) {
  const auto kernels_at = [](const char* head) { return kernels(programs(with_heads(), {{"head", head}}).fused); };
  EXPECT_EQ(kernels_at("64"), kernels_at("32"));
  EXPECT_EQ(kernels_at("64"), kernels_at("48"));
}

}  // namespace
}  // namespace ingot::codegen
