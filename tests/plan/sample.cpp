#include "tests/plan/sample.h"

#include <limits>
#include <random>

namespace ingot::ir {

int PlanMaker::arena(std::string name, int64_t bytes) {
  plan.arenas.push_back({std::move(name), bytes});
  return static_cast<int>(plan.arenas.size()) - 1;
}

BufferId PlanMaker::variable(std::string name, VariableRole role, Type type, int arena, int64_t offset, std::string init) {
  Buffer b;
  b.name = name;
  b.type = type;
  b.role = static_cast<BufferRole>(role);
  b.arena = arena;
  b.offset = offset;
  b.bytes = type.bytes();
  b.loc = make_loc("model.yaml", 3, 7);
  plan.buffers.push_back(b);
  Binding binding;
  binding.variable.name = std::move(name);
  binding.variable.role = role;
  binding.variable.type = std::move(type);
  binding.variable.init = std::move(init);
  binding.variable.loc = b.loc;
  binding.buffer = static_cast<BufferId>(plan.buffers.size()) - 1;
  plan.bindings.push_back(binding);
  return binding.buffer;
}

int PlanMaker::program(std::string name) {
  plan.programs.push_back({std::move(name), {}, {}, {}});
  return static_cast<int>(plan.programs.size()) - 1;
}

BufferId PlanMaker::local(int program, std::string name, Type type, BufferRole role, int arena, int64_t offset, int first,
                          int last) {
  Buffer b;
  b.name = plan.programs[program].name + "/" + std::move(name);
  b.type = std::move(type);
  b.role = role;
  b.program = program;
  b.arena = arena;
  b.offset = offset;
  b.bytes = b.type.bytes();
  b.first = first;
  b.last = last;
  plan.buffers.push_back(b);
  return static_cast<BufferId>(plan.buffers.size()) - 1;
}

BufferId PlanMaker::view(std::string name, Type type, BufferId owner, int64_t offset) {
  Buffer b = plan.buffers[owner];
  b.name = std::move(name);
  b.type = std::move(type);
  b.offset += offset;
  b.bytes = b.type.bytes();
  b.view_of = owner;
  plan.buffers.push_back(b);
  return static_cast<BufferId>(plan.buffers.size()) - 1;
}

void PlanMaker::kernel(std::string name, int args, int sizes) {
  Kernel k;
  k.name = k.symbol = std::move(name);
  k.image = "image.so";
  k.source = "kernels/all.cpp";
  k.args = args;
  k.sizes = sizes;
  plan.kernels.push_back(k);
}

Call& PlanMaker::call(int program, CallKind kind, std::string label, std::vector<Access> args) {
  Call c;
  c.kind = kind;
  c.label = std::move(label);
  c.args = std::move(args);
  plan.programs[program].calls.push_back(c);
  return plan.programs[program].calls.back();
}

Plan sample_plan() {
  PlanMaker m;
  m.plan.name = "sample";
  m.plan.target = "cpu";
  m.plan.target_features = "avx2 fma";
  m.plan.info = {{"width", "4"}, {"precision", "f32"}};
  m.plan.checkpoint_ignore = {"*.running_mean"};
  m.plan.ranges = {{"tokens", 0, 100, {-100}, make_loc("model.yaml", 2, 1)}};
  m.plan.files = {{"image.so", "machine code"}, {"kernels/all.cpp", "void mul() {}\n"}, {"model.yaml", "width: 4\n"}};
  const Type square{DType::f32, {4, 4}}, scalar{DType::f32, {}};
  const int params = m.arena("params", 512), states = m.arena("states", 256), io = m.arena("io", 1024),
            work = m.arena("work", 1024);
  const BufferId w = m.variable("w", VariableRole::param, square, params, 0, "normal(0.02)");
  m.plan.bindings.back().variable.lr_factor = 2.0;
  const BufferId w16 = m.variable("w.bf16", VariableRole::compute, {DType::bf16, {4, 4}}, params, 256);
  const BufferId step = m.variable("step", VariableRole::state, {DType::i32, {}}, states, 0);
  m.kernel("mul_1", 3, 1);
  m.kernel("cast_2", 2, 1);
  m.kernel("norm_3", 3, 2);

  const int init = m.program("init");
  m.call(init, CallKind::init, "w", {write(w)}).init = "normal(0.02)";
  m.call(init, CallKind::init, "step", {write(step)}).init = "0";
  const int prepare = m.program("prepare");
  Call& cast = m.call(prepare, CallKind::launch, "w.bf16", {read(w), write(w16)});
  cast.kernel = "cast_2";
  cast.sizes = {16};

  const int train = m.program("train");
  const BufferId x = m.local(train, "x", square, BufferRole::input, io, 0);
  const BufferId y = m.local(train, "y", square, BufferRole::output, io, 256);
  const BufferId loss = m.local(train, "loss", scalar, BufferRole::output, io, 512);
  const BufferId h = m.local(train, "h", square, BufferRole::temp, work, 0, 0, 2);
  const BufferId flat = m.view("train/h.flat", {DType::f32, {16}}, h);
  const BufferId row = m.view("train/h.row", {DType::f32, {4}}, h, 16);
  const BufferId g = m.local(train, "g", square, BufferRole::temp, work, 256, 1, 3);
  const BufferId scratch = m.local(train, "norm#0", {DType::boolean, {100}}, BufferRole::workspace, work, 512, 2, 2);
  m.input(train, "x", x);
  m.output(train, "y", y);
  m.output(train, "loss", loss);
  Call& mul = m.call(train, CallKind::launch, "h", {read(x), read(w), write(h)});
  mul.kernel = "mul_1";
  mul.sizes = {16};
  mul.tasks = 2;
  mul.flops = 16;
  mul.bytes = 192;
  mul.loc = derived(make_loc("model.yaml", 9, 3), "gradient");
  Call& gemm = m.call(train, CallKind::gemm, "g", {read(flat), read(w), write(g)});
  gemm.gemm.m = gemm.gemm.n = gemm.gemm.k = gemm.gemm.lda = gemm.gemm.ldb = gemm.gemm.ldc = gemm.gemm.ldd = 4;
  gemm.gemm.tb = true;
  Call& norm = m.call(train, CallKind::launch, "loss", {read(row), write(loss), inout(scratch)});
  norm.kernel = "norm_3";
  norm.sizes = {4, 1};
  m.call(train, CallKind::copy, "y", {read(g), write(y)});
  m.call(train, CallKind::fill, "step", {write(step)}).fill = 1;
  return m.plan;
}

namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool flip() { return below(2) == 0; }
  int64_t any() { return below(4) == 0 ? static_cast<int64_t>(engine_()) : below(1000) - 10; }
  int small() { return static_cast<int>(below(10) == 0 ? std::numeric_limits<int>::min() : below(100) - 2); }
  double real() {
    static constexpr double kOdd[] = {-0.0, 1e300, 5e-324, 0.1, -1e-5, std::numeric_limits<double>::infinity()};
    return below(3) == 0 ? kOdd[below(6)] : static_cast<double>(any()) / 8;
  }
  std::string text() {
    static const std::vector<std::string> kPieces = {"a", "blocks.0", " ", "\"",   "\\", "\n", "\t", "%",
                                                     "#", "é",        "/", "none", "7",  "{",  "//", "x_y"};
    std::string out;
    for (int64_t n = below(5); n > 0; --n) out += kPieces[below(static_cast<int64_t>(kPieces.size()))];
    return out;
  }
  Loc loc() {
    if (flip()) return {};
    Loc out;
    if (flip()) out.file = intern(text());
    if (flip()) out.origin = intern(text());
    out.line = small();
    out.col = small();
    return out;
  }
  Type type() {
    Type t{static_cast<DType>(below(6)), {}};
    for (int64_t n = below(4); n > 0; --n) t.shape.push_back(any());
    return t;
  }
  std::vector<int64_t> list() {
    std::vector<int64_t> out;
    for (int64_t n = below(4); n > 0; --n) out.push_back(any());
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

Call random_call(Random& r, int64_t buffers) {
  Call c;
  c.kind = static_cast<CallKind>(r.below(6));
  c.label = r.text();
  c.kernel = r.text();
  c.sizes = r.list();
  c.tasks = r.any();
  for (int64_t n = r.below(5); n > 0; --n) {
    const BufferId id = r.below(5) == 0 || buffers == 0 ? kNoBuffer : static_cast<BufferId>(r.below(buffers));
    c.args.push_back({id, static_cast<AccessMode>(r.below(3))});
  }
  if (r.flip())
    c.gemm = {r.any(), r.any(), r.any(), r.any(), r.flip(), r.flip(), r.any(),  r.any(), r.any(),
              r.any(), r.any(), r.any(), r.any(), r.any(),  r.real(), r.real(), r.text()};
  if (r.flip()) c.fill = r.real();
  if (r.flip()) c.init = r.text();
  if (r.flip()) c.lane = r.small();
  for (int64_t n = r.below(3); n > 0; --n) c.after.push_back(static_cast<int>(r.below(1000)));
  if (r.flip()) c.flops = r.real();
  if (r.flip()) c.bytes = r.real();
  c.loc = r.loc();
  return c;
}

Buffer random_buffer(Random& r, const Plan& plan, int64_t index, int64_t count) {
  Buffer b;
  b.name = r.text() + std::to_string(index);
  b.type = r.type();
  b.role = static_cast<BufferRole>(r.below(8));
  b.program = static_cast<int>(r.below(static_cast<int64_t>(plan.programs.size()) + 1)) - 1;
  b.arena = static_cast<int>(r.below(static_cast<int64_t>(plan.arenas.size())));
  b.offset = r.any();
  b.bytes = r.any();
  if (r.flip()) b.first = r.small(), b.last = r.small();
  if (r.flip()) b.view_of = static_cast<BufferId>(r.below(count));
  b.loc = r.loc();
  return b;
}

Binding random_binding(Random& r, int64_t buffers) {
  Binding b;
  b.variable = {r.text(), static_cast<VariableRole>(r.below(4)), r.type(), r.text(), r.flip(), r.flip(), r.real(), r.real(),
                r.loc()};
  if (buffers > 0 && r.flip()) b.buffer = static_cast<BufferId>(r.below(buffers));
  return b;
}

}  // namespace

Plan random_plan(uint64_t seed) {
  Random r(seed);
  Plan p;
  p.name = r.text();
  p.target = r.text();
  p.target_features = r.text();
  for (int64_t n = r.below(4); n > 0; --n) p.info.emplace_back(r.text(), r.text());
  for (int64_t n = r.below(3); n > 0; --n) p.checkpoint_ignore.push_back(r.text());
  for (int64_t n = r.below(3); n > 0; --n) p.ranges.push_back({r.text(), r.any(), r.any(), r.list(), r.loc()});
  for (int64_t n = 1 + r.below(3); n > 0; --n) p.arenas.push_back({r.text() + std::to_string(n), r.any()});
  for (int64_t n = r.below(4); n > 0; --n) p.programs.push_back({r.text() + std::to_string(n), {}, {}, {}});
  const int64_t count = r.below(6);
  for (int64_t i = 0; i < count; ++i) p.buffers.push_back(random_buffer(r, p, i, count));
  for (int64_t n = r.below(3); n > 0; --n) {
    p.kernels.push_back({r.text(), r.text(), r.text(), r.text(), r.small(), r.small(), r.small(), r.small(), r.small()});
  }
  for (int64_t n = r.below(3); n > 0; --n) p.bindings.push_back(random_binding(r, count));
  for (int64_t n = r.below(3); n > 0; --n) p.files[r.text() + "f"] = r.text();
  for (Program& program : p.programs) {
    for (int64_t n = count > 0 ? r.below(3) : 0; n > 0; --n)
      program.inputs.push_back({r.text(), static_cast<BufferId>(r.below(count))});
    for (int64_t n = count > 0 ? r.below(3) : 0; n > 0; --n)
      program.outputs.push_back({r.text(), static_cast<BufferId>(r.below(count))});
    for (int64_t n = r.below(6); n > 0; --n) program.calls.push_back(random_call(r, count));
  }
  return p;
}

}  // namespace ingot::ir
