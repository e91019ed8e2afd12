// Random graphs with views, aliases, updates and outputs, lowered and run by a machine that knows only bytes: its answers, over
// several runs, are those of the interpreter, which knows only values. Temps hold NaN outside their lives.
// With several lanes it runs the calls in any order that lanes and waits allow, and answers the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "codegen/lower.h"
#include "codegen/siblings.h"
#include "ir/base/error.h"
#include "ir/graph/builder.h"
#include "ir/graph/interpret.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "ir/plan/lanes.h"
#include "passes/pass.h"
#include "tests/codegen/fake_target.h"

namespace ingot::codegen {
namespace {

using ir::Builder;
using ir::DType;
using ir::Graph;
using ir::Shape;
using ir::Tensor;
using ir::Type;
using ir::ValueId;

/// Every op is a kernel of its own, found again by its name.
class NamingTarget final : public Target {
 public:
  /// Products scribble in workspaces of so many bytes.
  explicit NamingTarget(int64_t gemm_workspace = 0) { base_.gemm_workspace = gemm_workspace; }
  /// Some ops leave sums to wait, so many at most.
  void let_sums_wait(size_t most) {
    base_.waiting = {"sum", "tanh", "square", "sub"};
    base_.limits.sums = most;
  }
  Launch add_sums(const std::vector<RowSum>& sums) const override { return base_.add_sums(sums); }
  SumLimits sum_limits() const override { return base_.sum_limits(); }
  int64_t gemm_workspace_bytes() const override { return base_.gemm_workspace; }
  std::string name() const override { return "naming"; }
  OpLaunches lower(const OpSite& site) const override {
    OpLaunches out = base_.lower(site);
    out.launches[0].text += " of " + site.graph.value(site.op.results[0]).name;
    return out;
  }
  std::string refuses(const Graph&, const ir::Op&) const override { return ""; }
  BuiltKernels build(const std::vector<KernelText>& kernels) const override { return base_.build(kernels); }

 private:
  FakeTarget base_;
};

/// Calls in the order they were run in.
using Order = std::vector<size_t>;

/// A device that runs the calls of a program: which ones may come next.
class Device {
 public:
  explicit Device(const ir::Program& program) : program_(program), next_(static_cast<size_t>(ir::lane_count(program))) {
    lanes_.resize(next_.size());
    for (size_t i = 0; i < program.calls.size(); ++i) lanes_[static_cast<size_t>(program.calls[i].lane)].push_back(i);
    done_.assign(program.calls.size(), false);
  }
  std::vector<size_t> ready() const {
    std::vector<size_t> out;
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (next_[lane] == lanes_[lane].size()) continue;
      const size_t call = lanes_[lane][next_[lane]];
      const std::vector<int>& after = program_.calls[call].after;
      if (std::all_of(after.begin(), after.end(), [&](int i) { return done_[static_cast<size_t>(i)]; })) out.push_back(call);
    }
    return out;
  }
  void run(size_t call) {
    done_[call] = true;
    ++next_[static_cast<size_t>(program_.calls[call].lane)];
    order_.push_back(call);
  }
  const Order& order() const { return order_; }

 private:
  const ir::Program& program_;
  std::vector<size_t> next_;  ///< per lane, in lanes_
  std::vector<std::vector<size_t>> lanes_;
  std::vector<bool> done_;
  Order order_;
};

/// One order; `pick` chooses among the calls that may come next.
template <class Pick>
Order order_by(const ir::Program& program, const Pick& pick) {
  Device device(program);
  for (std::vector<size_t> ready = device.ready(); !ready.empty(); ready = device.ready()) device.run(pick(ready));
  return device.order();
}
Order list_order(const ir::Program& program) {
  Order order(program.calls.size());
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

/// Every order there is, `most` at most.
void every_order(const Device& so_far, size_t most, std::vector<Order>& orders) {
  const std::vector<size_t> ready = so_far.ready();
  if (ready.empty()) orders.push_back(so_far.order());
  for (const size_t call : ready) {
    if (orders.size() >= most) return;
    Device next = so_far;
    next.run(call);
    every_order(next, most, orders);
  }
}

class Machine {
 public:
  Machine(const ir::Plan& plan, const Graph& graph) : plan_(plan), graph_(graph), program_(*plan.find_program("p")) {
    for (const ir::Arena& arena : plan.arenas) memory_.emplace_back(static_cast<size_t>(arena.bytes), std::nan(""));
    for (const ir::Call& call : plan.find_program("init")->calls) {
      if (call.kind == ir::CallKind::fill) run(call);  // between variables
    }
  }

  Tensor read(ir::BufferId id) const {
    const ir::Buffer& b = plan_.buffers[id];
    Tensor t(b.type);
    for (size_t i = 0; i < t.data.size(); ++i) t.data[i] = memory_[b.arena][at(b, i)];
    return t;
  }
  void write(ir::BufferId id, const std::vector<double>& data) {
    const ir::Buffer& b = plan_.buffers[id];
    for (size_t i = 0; i < data.size(); ++i) memory_[b.arena][at(b, i)] = data[i];
  }
  void write_variable(const std::string& name, const Tensor& t) { write(plan_.find_binding(name)->buffer, t.data); }
  Tensor read_variable(const std::string& name) const { return read(plan_.find_binding(name)->buffer); }

  void run(const std::map<std::string, Tensor>& inputs, const Order& order) {
    for (const ir::Port& port : program_.inputs) write(port.buffer, inputs.at(port.name).data);
    std::vector<int> touches(plan_.buffers.size(), 0);  // to come, by owner
    std::vector<bool> alive(plan_.buffers.size(), false);
    const auto each_owner = [&](const ir::Call& call, const auto& each) {
      for (const ir::Access& access : call.args) {
        if (access.buffer == ir::kNoBuffer) continue;
        const ir::Buffer& b = plan_.buffers[access.buffer];
        each(b.view_of == ir::kNoBuffer ? access.buffer : b.view_of);
      }
    };
    for (const ir::Call& call : program_.calls) each_owner(call, [&](ir::BufferId owner) { ++touches[owner]; });
    for (const size_t i : order) {
      each_owner(program_.calls[i], [&](ir::BufferId owner) { alive[owner] = true; });
      poison(alive);
      run(program_.calls[i]);
      each_owner(program_.calls[i], [&](ir::BufferId owner) { alive[owner] = --touches[owner] > 0; });
    }
  }
  Tensor output(const std::string& name) const {
    for (const ir::Port& port : program_.outputs) {
      if (port.name == name) return read(port.buffer);
    }
    throw std::logic_error("no output " + name);
  }

 private:
  static size_t at(const ir::Buffer& b, size_t i) {
    return static_cast<size_t>(b.offset) + i * static_cast<size_t>(ir::dtype_bytes(b.type.dtype));
  }

  // All bytes but those of owners that are alive.
  void poison(const std::vector<bool>& alive) {
    for (size_t a = 0; a < memory_.size(); ++a) {
      if (plan_.arenas[a].name != "work") continue;
      const std::vector<double> before = memory_[a];
      std::fill(memory_[a].begin(), memory_[a].end(), std::nan(""));
      for (size_t id = 0; id < plan_.buffers.size(); ++id) {
        const ir::Buffer& b = plan_.buffers[id];
        if (b.arena != static_cast<int>(a) || !alive[id]) continue;
        std::copy_n(before.begin() + b.offset, b.bytes, memory_[a].begin() + b.offset);
      }
    }
  }

  void run(const ir::Call& call) {
    switch (call.kind) {
      case ir::CallKind::fill:
        return write(call.args[0].buffer, std::vector<double>(read(call.args[0].buffer).data.size(), call.fill));
      case ir::CallKind::copy:
        return write(call.args[1].buffer, read(call.args[0].buffer).data);
      case ir::CallKind::gemm:
        return gemm(call);
      default:
        return launch(call);
    }
  }

  void gemm(const ir::Call& call) {
    const ir::Gemm& g = call.gemm;
    const Tensor a = read(call.args[0].buffer), b = read(call.args[1].buffer);
    const bool adds = g.beta != 0;
    Tensor d = read(call.args[g.result()].buffer);
    const Tensor c = adds ? read(call.args[2].buffer) : Tensor(Type{DType::f32, {}});
    for (int64_t batch = 0; batch < g.batch; ++batch) {
      for (int64_t i = 0; i < g.m; ++i) {
        for (int64_t j = 0; j < g.n; ++j) {
          double sum = adds ? g.beta * c.data[batch * g.stride_c + i * g.ldc + j] : 0;
          for (int64_t k = 0; k < g.k; ++k) {
            sum += a.data[batch * g.stride_a + (g.ta ? k * g.lda + i : i * g.lda + k)] *
                   b.data[batch * g.stride_b + (g.tb ? j * g.ldb + k : k * g.ldb + j)];
          }
          d.data[batch * g.stride_d + i * g.ldd + j] = sum;
        }
      }
    }
    write(call.args[g.result()].buffer, d.data);
    if (call.workspace() == ir::kNoBuffer) return;
    write(call.workspace(), std::vector<double>(static_cast<size_t>(plan_.buffers[call.workspace()].bytes), 1e30));
  }

  // Whoever leaves a sum writes it as the first row of its partials.
  void add_sums(const ir::Call& call) {
    for (size_t i = 0; i < call.args.size(); i += 2) {
      std::vector<double> row = read(call.args[i].buffer).data;
      row.resize(static_cast<size_t>(plan_.buffers[call.args[i + 1].buffer].type.elements()));
      write(call.args[i + 1].buffer, row);
    }
  }

  void launch(const ir::Call& call) {
    const std::string& source = plan_.files.at("kernels.txt");
    const size_t begin = source.find(call.kernel + " ");
    const std::string line = source.substr(begin, source.find('\n', begin) - begin);
    if (line.find(" of ") == std::string::npos) return add_sums(call);
    const ir::Op& op = graph_.maker(graph_.find(line.substr(line.find(" of ") + 4)));
    std::vector<Tensor> operands;
    for (size_t i = 0; i < op.operands.size(); ++i) operands.push_back(read(call.args[i].buffer));
    std::vector<const Tensor*> pointers;
    for (const Tensor& t : operands) pointers.push_back(&t);
    const std::vector<Tensor> results = ir::interpret_op(graph_, op, pointers);
    for (size_t r = 0; r < results.size(); ++r) {
      const ir::BufferId to = call.args[operands.size() + r].buffer;
      if (to != ir::kNoBuffer) write(to, results[r].data);
    }
  }

  const ir::Plan& plan_;
  const Graph& graph_;
  const ir::Program& program_;
  std::vector<std::vector<double>> memory_;
};

class GraphMaker {
 public:
  /// With `families`: mostly products of one shape, several at a time.
  explicit GraphMaker(uint64_t seed, bool families = false) : random_(seed), families_(families) {}

  int64_t below(size_t n) { return static_cast<int64_t>(random_() % n); }

  ir::Module make() {
    ir::Module module;
    module.name = "m";
    Graph graph("p", ir::Level::core);
    Builder b(graph);
    for (const char* name : {"u", "v", "w", "x", "y", "z"}) {
      ir::Variable variable;
      variable.name = name;
      variable.role = ir::VariableRole::state;
      variable.type = {DType::f32, shape()};
      module.variables.push_back(variable);
    }
    for (const char* name : {"in0", "in1"}) values_.push_back(b.input(name, {DType::f32, shape()}));
    scalar_ = b.input("scale", {DType::f32, {}});
    ok_ = b.input("ok", {DType::boolean, {}});
    for (const ir::Variable& variable : module.variables) {
      if (below(4) > 0) values_.push_back(b.variable(variable));
    }
    for (int64_t n = 5 + below(20); n > 0; --n) step(b);
    const bool packed = below(2) == 0;
    if (packed) update_packed(b, module.variables);
    if (families_ && !packed) accumulate(b, module.variables);
    if (below(2) == 0) step(b);
    for (const ir::Variable& variable : module.variables) {
      const auto named = [&](const ir::Update& update) { return update.variable == variable.name; };
      if (std::any_of(graph.updates().begin(), graph.updates().end(), named) || below(4) == 0) continue;
      ValueId value = any();
      if (!(b.type(value) == variable.type)) value = b.reshape(value, variable.type.shape);
      graph.add_update({variable.name, value, {}});
    }
    for (int64_t n = 1 + below(3); n > 0; --n) graph.add_output({"out" + std::to_string(n), any(), {}});
    module.set_graph(std::move(graph));
    return module;
  }

 private:
  // All of 24 elements, so that anything can be reshaped into anything.
  Shape shape() {
    static const std::vector<Shape> kShapes = {{24}, {4, 6}, {2, 3, 4}, {6, 4}};
    return kShapes[below(kShapes.size())];
  }
  // Recent values more often: long chains.
  ValueId any() {
    return values_[values_.size() - 1 -
                   static_cast<size_t>(below(below(2) ? std::min<size_t>(values_.size(), 4) : values_.size()))];
  }
  ValueId like(Builder& b, ValueId other) {
    const ValueId value = any();
    return b.type(value) == b.type(other) ? value : b.reshape(value, b.shape(other));
  }

  void step(Builder& b) {
    if (families_ && below(2) == 0) return family(b);
    const ValueId x = any();
    switch (below(9)) {
      case 0:
        return values_.push_back(b.make("tanh", {x}));
      case 1:
        return values_.push_back(b.sub(x, like(b, x)));
      case 2:
        return values_.push_back(b.mul(x, b.constant(static_cast<double>(below(3)) - 0.5)));
      case 3:
        return values_.push_back(b.reshape(x, shape()));
      case 4: {
        const ValueId flat = b.reshape(x, {2, 12});
        ValueId half = b.slice(flat, {below(2), 0}, {1, 12});
        if (below(2) == 0) {  // a part of a part
          const ValueId quarter = b.slice(b.reshape(half, {2, 6}), {below(2), 0}, {1, 6});
          half = b.reshape(b.concat({quarter, quarter}, 0), {1, 12});
        }
        return values_.push_back(b.reshape(b.concat({half, b.make("neg", {half})}, 0), shape()));
      }
      case 5: {
        const ValueId left = b.reshape(x, {6, 4});
        const ValueId square = b.mul(b.matmul(left, left, true, false), 0.01);
        if (below(2) == 0) return values_.push_back(b.matmul(square, left, false, true));  // [4, 6]
        return values_.push_back(b.make("matmul", {left, square, b.reshape(any(), {6, 4})}));
      }
      case 6: {
        const ValueId left = b.reshape(x, {2, 1, 3, 4}), right = b.reshape(any(), {2, 3, 4});
        const ValueId product = b.matmul(left, right, false, true);  // [2, 2, 3, 3]
        return values_.push_back(b.reshape(b.slice(product, {0, 0, 0, 0}, {2, 2, 2, 3}), shape()));
      }
      case 7:
        return values_.push_back(b.broadcast(b.mul(b.sum(x, {0}), 0.1), like_rows(b, x)));
      default: {
        const std::vector<ValueId> four = {x, like(b, x), like(b, x), b.make("square", {like(b, x)})};
        std::vector<ValueId> operands = four;
        operands.insert(operands.end(), 8, scalar_);
        operands.push_back(ok_);
        for (const ValueId result : b.op("adamw", operands).results) values_.push_back(result);
      }
    }
  }

  ValueId rows(Builder& b, ValueId value) { return b.reshape(value, {6, 4}); }
  ValueId square(Builder& b, ValueId value) { return b.mul(b.matmul(rows(b, value), rows(b, any()), true, false), 0.01); }

  // Products [6, 4] that may be siblings, and what is made of them: something each, in place perhaps, a sum, all side by side.
  void family(Builder& b) {
    const size_t count = 2 + static_cast<size_t>(below(3));
    const int64_t kind = below(4), use = below(3);
    const ValueId shared = rows(b, any());
    std::vector<ValueId> squares, made;
    for (size_t i = 0; i < count; ++i) squares.push_back(below(4) == 0 && i > 0 ? squares[0] : square(b, any()));
    for (size_t i = 0; i < count; ++i) {
      const ValueId left = kind == 0 ? shared : rows(b, any());
      const bool adds = kind == 1 || (kind == 2 && below(2) == 0);
      made.push_back(adds ? b.make("matmul", {left, squares[i], rows(b, any())}) : b.matmul(left, squares[i]));
      if (below(4) == 0) values_.push_back(b.make("tanh", {any()}));
      if (use == 0) made.back() = b.make("tanh", {made.back()});
    }
    if (use == 1) made = {b.make("square", {b.reshape(b.concat(made, 0), {24 * static_cast<int64_t>(count)})})};
    for (const ValueId value : made) {
      const int64_t parts = b.type(value).elements() / 24;
      for (int64_t i = 0; i < parts; ++i) {
        values_.push_back(parts == 1 ? value : b.slice(value, {24 * i}, {24}));
      }
    }
  }

  // Sums that go on in variables.
  void accumulate(Builder& b, const std::vector<ir::Variable>& variables) {
    std::vector<ValueId> squares;
    for (size_t i = 0; i < 3; ++i) squares.push_back(square(b, any()));
    for (size_t i = 0; i < 3; ++i) {
      const ValueId sum = b.make("matmul", {rows(b, any()), squares[i], rows(b, b.variable(variables[i]))});
      b.graph().add_update({variables[i].name, b.reshape(sum, variables[i].type.shape), {}});
    }
  }

  static Shape like_rows(Builder& b, ValueId x) { return b.shape(x); }

  // Two values of 24 elements, the second 256 bytes from the first, zeros after each.
  ValueId pack(Builder& b, ValueId first, ValueId second) {
    std::vector<ValueId> parts;
    for (const ValueId value : {first, second}) {
      parts.push_back(b.reshape(value, {24}));
      parts.push_back(b.full(0, {DType::f32, {40}}));
    }
    return b.reshape(b.concat(std::move(parts), 0), {2, 64});
  }

  // One optimizer step over all variables, two by two; at times a variable is left out, exchanged or also read afterwards.
  void update_packed(Builder& b, const std::vector<ir::Variable>& variables) {
    std::vector<ValueId> operands, old;
    for (const ir::Variable& variable : variables) old.push_back(b.variable(variable));
    for (size_t i = 0; i < 6; i += 2) {
      operands.push_back(pack(b, old[i], old[i + 1]));
      if (i == 0) operands.push_back(pack(b, any(), any()));
    }
    operands.insert(operands.end(), 8, scalar_);
    operands.push_back(ok_);
    const std::vector<ValueId> results = b.op("adamw", operands).results;
    const size_t exchanged = below(4) == 0 ? 1 : 0;
    for (size_t i = 0; i < 6; ++i) {
      if (below(16) == 0) continue;
      const ValueId flat = b.reshape(results[i / 2], {128});
      const ValueId value = b.slice(flat, {static_cast<int64_t>((i + exchanged) % 2) * 64}, {24});
      b.graph().add_update({variables[i].name, b.reshape(value, variables[i].type.shape), {}});
      if (below(8) == 0) values_.push_back(value);
    }
    if (below(4) == 0) values_.push_back(old[0]);
  }

  std::mt19937_64 random_;
  const bool families_;
  std::vector<ValueId> values_;
  ValueId scalar_ = ir::kNone, ok_ = ir::kNone;
};

void expect_equal(const Tensor& expected, const Tensor& got, const std::string& what) {
  ASSERT_EQ(expected.data.size(), got.data.size()) << what;
  for (size_t i = 0; i < expected.data.size(); ++i) {
    const double e = expected.data[i], g = got.data[i];
    if (std::isnan(e) && std::isnan(g)) continue;
    ASSERT_NEAR(e, g, 1e-9 * (1 + std::abs(e))) << what << "[" << i << "]";
  }
}

/// What the seeds must have exercised.
struct Seen {
  int aliases = 0, copies = 0, segments = 0, whole_steps = 0, beside = 0;
  // Products made together: calls, and of these such as share an operand, add in place; and all that asked for it.
  int together = 0, shared = 0, added_in_place = 0, siblings = 0;
  int sums = 0, sum_calls = 0;
};

void count_sums(const ir::Plan& plan, Seen& seen) {
  for (const ir::Call& call : plan.find_program("p")->calls) {
    if (!call.kernel.starts_with("sums_")) continue;
    ++seen.sum_calls;
    seen.sums += static_cast<int>(call.args.size() / 2);
  }
}

// Is the whole optimizer step in place?
bool in_place(const ir::Plan& plan, const ir::Call& call) {
  const auto wide = [&](const ir::Access& a) {
    return a.mode == ir::AccessMode::inout && plan.buffers[a.buffer].type.bytes() == 512 && plan.buffers[a.buffer].program == -1;
  };
  return std::count_if(call.args.begin(), call.args.end(), wide) == 6;
}

/// A random module and what goes into it.
class Simulation {
 public:
  explicit Simulation(uint64_t seed, bool families = false)
      : seed_(seed), module_(GraphMaker(seed, families).make()), random_(seed + 1) {
    if (families)
      module_.set_graph(passes::run_pipeline(graph(), module_, passes::parse_pipeline("siblings{tiles_at_a_time=1e9}")));
    ir::verify(module_);
  }

  ir::Plan plan(const CompileOptions& options) const {
    NamingTarget target(seed_ % 2 == 0 ? 0 : 100);
    if (seed_ % 3 != 0) target.let_sums_wait(2 + seed_ % 5);
    return assemble(module_, {{"p", graph()}}, target, options);
  }

  const Graph& graph() const { return module_.graph("p"); }

  /// Several runs, each in an order of its own: outputs and variables are the interpreter's.
  template <class Orders>
  void run(const ir::Plan& plan, const Orders& order) {
    Machine machine(plan, graph());
    std::map<std::string, Tensor> variables;
    for (const ir::Variable& v : module_.variables) machine.write_variable(v.name, variables[v.name] = draw(v.type));
    for (int run = 0; run < 3; ++run) {
      std::map<std::string, Tensor> inputs;
      for (const ir::Port& port : plan.find_program("p")->inputs) inputs[port.name] = draw(plan.buffers[port.buffer].type);
      inputs["scale"].data[0] = 0.25;
      machine.run(inputs, order(*plan.find_program("p")));
      const ir::InterpretResult expected = ir::interpret(graph(), inputs, variables);
      const std::string where = fmt::format("seed {} run {} ", seed_, run);
      for (const auto& [name, tensor] : expected.outputs) expect_equal(tensor, machine.output(name), where + name);
      for (const auto& [name, tensor] : expected.updates) variables[name] = tensor;
      for (const auto& [name, tensor] : variables) expect_equal(tensor, machine.read_variable(name), where + name);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  Tensor draw(const Type& type) {
    Tensor t(type);
    for (double& x : t.data) x = type.dtype == DType::boolean ? 1 : static_cast<double>(random_() % 1000) / 1000 - 0.3;
    return t;
  }

  uint64_t seed_;
  ir::Module module_;
  std::mt19937_64 random_;
};

void simulate(uint64_t seed, bool reuse, Seen& seen) {
  Simulation simulation(seed);
  CompileOptions options;
  options.reuse_memory = reuse;
  const ir::Plan plan = simulation.plan(options);
  for (const ir::Call& call : plan.find_program("p")->calls) {
    seen.copies += call.kind == ir::CallKind::copy;
    for (const ir::Access& access : call.args) seen.aliases += access.mode == ir::AccessMode::inout;
    seen.whole_steps += in_place(plan, call);
  }
  count_sums(plan, seen);
  for (const ir::Buffer& b : plan.buffers) seen.segments += b.program == -1 && b.view_of != ir::kNoBuffer;
  simulation.run(plan, list_order);
}

TEST(Simulate, RandomProgramsMeanTheirGraphs) {
  Seen seen;
  for (uint64_t seed = 0; seed < 600 && !HasFatalFailure(); ++seed) simulate(seed, true, seen);
  EXPECT_GT(seen.aliases, 100) << "the graphs must exercise writing in place";
  EXPECT_GT(seen.copies, 100) << "and copies at the end";
  EXPECT_GT(seen.segments, 100) << "and variables side by side";
  EXPECT_GT(seen.whole_steps, 20) << "and packed steps in place";
  EXPECT_GT(seen.sums, 1000) << "and sums that wait";
  EXPECT_GT(seen.sums - seen.sum_calls, 100) << "for others";
}

TEST(Simulate, WithoutReuseToo) {
  Seen seen;
  for (uint64_t seed = 600; seed < 700 && !HasFatalFailure(); ++seed) simulate(seed, false, seen);
}

// ---------------------------------------------------------------- lanes

/// An order at random, or as unfair to the list as it can be: some lanes as far ahead of the others as they may.
Order unfair(const ir::Program& program, std::mt19937_64& random) {
  const uint64_t how = random() % 4;
  return order_by(program, [&](const std::vector<size_t>& ready) {
    switch (how) {
      case 0:
        return ready.back();  // the highest lane first
      case 1:
        return *std::max_element(ready.begin(), ready.end());  // what stands last in the list
      case 2:
        return ready.front();  // the others only when lane 0 waits
      default:
        return ready[random() % ready.size()];
    }
  });
}

CompileOptions with_lanes(int lanes) {
  CompileOptions options;
  options.lanes = lanes;
  return options;
}

TEST(Lanes, AnyOrderTheyAllowGivesTheSame) {
  std::mt19937_64 random(7);
  Seen seen;
  for (uint64_t seed = 1000; seed < 1400 && !HasFatalFailure(); ++seed) {
    Simulation simulation(seed);
    const ir::Plan plan = simulation.plan(with_lanes(2 + static_cast<int>(seed % 3)));
    for (const ir::Call& call : plan.find_program("p")->calls) seen.beside += call.lane > 0;
    count_sums(plan, seen);
    simulation.run(plan, [&](const ir::Program& program) { return unfair(program, random); });
  }
  EXPECT_GT(seen.beside, 400) << "calls must leave lane 0";
  EXPECT_GT(seen.sums - seen.sum_calls, 100) << "sums must wait for others";
}

// Of programs that leave some choice and not too much: all orders.
TEST(Lanes, EveryOrderThereIs) {
  constexpr size_t kMost = 100;
  size_t programs = 0, tried = 0;
  for (uint64_t seed = 1360; seed < 1440 && !HasFatalFailure(); ++seed) {
    const ir::Plan plan = Simulation(seed).plan(with_lanes(3));
    std::vector<Order> orders;
    every_order(Device(*plan.find_program("p")), kMost, orders);
    if (orders.size() == 1 || orders.size() >= kMost) continue;
    for (const Order& order : orders) {
      Simulation(seed).run(plan, [&](const ir::Program&) { return order; });
      if (HasFatalFailure()) return;
    }
    tried += orders.size();
    ++programs;
  }
  EXPECT_GT(programs, 8u);
  EXPECT_GT(tried, 200u);
}

// The list is a valid order whatever the lanes: what the CPU runs.
TEST(Lanes, TheListsOrderIsOneOfThem) {
  for (uint64_t seed = 1440; seed < 1500 && !HasFatalFailure(); ++seed) {
    Simulation simulation(seed);
    const ir::Plan plan = simulation.plan(with_lanes(4));
    const Order order = order_by(*plan.find_program("p"),
                                 [](const std::vector<size_t>& ready) { return *std::min_element(ready.begin(), ready.end()); });
    EXPECT_EQ(order, list_order(*plan.find_program("p")));
    simulation.run(plan, list_order);
  }
}

// What the verifier lets pass without one of its waits gives the same answers in any order too; most it refuses.
TEST(Lanes, TheVerifierRefusesPlansThatRace) {
  std::mt19937_64 random(9);
  int refused = 0, passed = 0;
  for (uint64_t seed = 1500; seed < 1600 && !HasFatalFailure(); ++seed) {
    const ir::Plan whole = Simulation(seed).plan(with_lanes(3));
    const std::vector<ir::Call>& calls = whole.find_program("p")->calls;
    for (size_t i = 0; i < calls.size(); ++i) {
      for (size_t k = 0; k < calls[i].after.size(); ++k) {
        ir::Plan plan = whole;
        std::vector<int>& after = plan.programs.back().calls[i].after;
        after.erase(after.begin() + static_cast<std::ptrdiff_t>(k));
        try {
          ir::verify_plan(plan);
        } catch (const ir::UserError& error) {
          EXPECT_NE(std::string(error.what()).find("does not wait for call"), std::string::npos) << error.what();
          ++refused;
          continue;
        }
        ++passed;
        for (int n = 0; n < 5; ++n)
          Simulation(seed).run(plan, [&](const ir::Program& program) { return unfair(program, random); });
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(passed, 0) << "some waits only keep memory small";
}

TEST(Lanes, SameTextEveryTime) {
  EXPECT_EQ(ir::print_plan(Simulation(1001).plan(with_lanes(3))), ir::print_plan(Simulation(1001).plan(with_lanes(3))));
}

// ---------------------------------------------------------------- products made together

void count_together(const Simulation& simulation, const ir::Plan& plan, Seen& seen) {
  for (const ir::Op& op : simulation.graph().ops()) seen.siblings += siblings(op) > 1;
  for (const ir::Call& call : plan.find_program("p")->calls) {
    if (call.kind != ir::CallKind::gemm || call.label.find('+') == std::string::npos) continue;
    ++seen.together;
    seen.shared += call.gemm.stride_a == 0 || call.gemm.stride_b == 0;
    seen.added_in_place += call.args[2].mode == ir::AccessMode::inout;
  }
}

TEST(Simulate, ProductsMadeTogetherMeanTheirGraphs) {
  Seen seen;
  std::mt19937_64 random(5);
  for (uint64_t seed = 2000; seed < 2250 && !HasFatalFailure(); ++seed) {
    Simulation simulation(seed, true);
    CompileOptions options;
    options.lanes = 1 + static_cast<int>(seed % 3);
    const ir::Plan plan = simulation.plan(options);
    count_together(simulation, plan, seen);
    simulation.run(plan, [&](const ir::Program& program) { return unfair(program, random); });
  }
  EXPECT_GT(seen.siblings, 5000);
  EXPECT_GT(seen.together, 500);
  EXPECT_GT(seen.shared, 200);
  EXPECT_GT(seen.added_in_place, 5);
}

}  // namespace
}  // namespace ingot::codegen
