#include "tests/runtime/bigram.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace ingot::runtime {
namespace {

using ir::AccessMode;
using ir::BufferId;
using ir::BufferRole;
using ir::DType;
using ir::VariableRole;

const char* const kSource = R"(
#include <math.h>
#include <stdint.h>
extern "C" {
// args: table, tokens, targets, loss, count, grad; sizes: rows, vocab. Sums the loss and its gradient over valid rows.
void pass(void* const* a, const int64_t* s, int64_t) {
  const float* table = (const float*)a[0]; const int32_t* x = (const int32_t*)a[1]; const int32_t* y = (const int32_t*)a[2];
  float* grad = (float*)a[5]; double loss = 0, count = 0; const int64_t V = s[1];
  if (grad) for (int64_t i = 0; i < V * V; ++i) grad[i] = 0;
  for (int64_t r = 0; r < s[0]; ++r) {
    if (y[r] < 0) continue;
    const float* row = table + x[r] * V; double most = -1e30, sum = 0;
    for (int64_t j = 0; j < V; ++j) if (row[j] > most) most = row[j];
    for (int64_t j = 0; j < V; ++j) sum += exp(row[j] - most);
    loss += log(sum) + most - row[y[r]]; count += 1;
    if (grad) for (int64_t j = 0; j < V; ++j) grad[x[r] * V + j] += (float)(exp(row[j] - most) / sum - (j == y[r]));
  }
  *(float*)a[3] = (float)loss; *(float*)a[4] = (float)count;
}
// to += from, or = where first; args: from, to; sizes: n, first
void gather(void* const* a, const int64_t* s, int64_t) {
  for (int64_t i = 0; i < s[0]; ++i) ((float*)a[1])[i] = ((const float*)a[0])[i] + (s[1] ? 0 : ((float*)a[1])[i]);
}
// args: table, m, step, lr, steps, grad, loss, count, out loss, out count, norm, out lr; sizes: n
void update(void* const* a, const int64_t* s, int64_t) {
  float* table = (float*)a[0]; float* m = (float*)a[1]; int32_t* step = (int32_t*)a[2]; const float* grad = (const float*)a[5];
  const float count = *(float*)a[7]; const float lr = *(float*)a[3] * (1 - *step / *(float*)a[4]); double norm = 0;
  for (int64_t i = 0; i < s[0]; ++i) norm += (double)grad[i] / count * grad[i] / count;
  *(float*)a[8] = *(float*)a[6]; *(float*)a[9] = count; *(float*)a[10] = (float)sqrt(norm); *(float*)a[11] = lr;
  if (!(count > 0) || !isfinite(norm)) return;
  for (int64_t i = 0; i < s[0]; ++i) { m[i] = 0.5f * m[i] + grad[i] / count; table[i] -= lr * m[i]; }
  ++*step;
}
// args: table, tokens, seen, logits; sizes: vocab. One more token seen makes its own repetition less likely.
void decode(void* const* a, const int64_t* s, int64_t) {
  const int32_t x = *(int32_t*)a[1]; float* seen = (float*)a[2]; const float* row = (const float*)a[0] + x * s[0];
  for (int64_t j = 0; j < s[0]; ++j) ((float*)a[3])[j] = row[j];
  *seen += 1; ((float*)a[3])[x] -= *seen;
}
}
)";

std::string image() {
  static const std::string bytes = [] {
    const std::string base = "/tmp/ingot-bigram-" + std::to_string(getpid());
    std::ofstream(base + ".cpp") << kSource;
    const std::string command = "c++ -O1 -shared -fPIC -o " + base + ".so " + base + ".cpp";
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command);
    std::ifstream in(base + ".so", std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    unlink((base + ".cpp").c_str());
    unlink((base + ".so").c_str());
    return text.str();
  }();
  return bytes;
}

class Maker {
 public:
  explicit Maker(const BigramOptions& o) : o_(o) {
    plan_.name = "bigram";
    plan_.target = "cpu";
    plan_.arenas = {{"all", 0}};
    plan_.files = {{"image.so", image()}, {"bigram.cpp", kSource}};
    for (auto [name, args, sizes] : {std::tuple{"pass", 6, 2}, {"gather", 2, 2}, {"update", 12, 1}, {"decode", 4, 1}}) {
      ir::Kernel k;
      k.name = k.symbol = name;
      k.image = "image.so";
      k.source = "bigram.cpp";
      k.args = args;
      k.sizes = sizes;
      plan_.kernels.push_back(k);
    }
    plan_.info = {{"vocab", std::to_string(o.vocab)}, {"batch", std::to_string(o.batch)}, {"time", std::to_string(o.time)}};
    if (!o.extra_info.empty()) plan_.info.emplace_back("width", o.extra_info);
    plan_.ranges = {{"tokens", 0, o.vocab - 1, {}, {}}, {"targets", 0, o.vocab - 1, {-100}, {}}};
    plan_.checkpoint_ignore = {"old.*"};
  }

  ir::Plan make() {
    variables();
    init();
    prepare();
    if (o_.microbatches) {
      for (const char* name : {"first", "next", "last"}) train(name);
    } else {
      train("train");
    }
    eval();
    decode();
    return std::move(plan_);
  }

 private:
  BufferId place(std::string name, ir::Type type, BufferRole role, int first = -1, int last = -1) {
    ir::Buffer b;
    b.name = std::move(name);
    b.role = role;
    b.program = role <= BufferRole::compute ? -1 : static_cast<int>(plan_.programs.size()) - 1;
    b.bytes = type.bytes();
    b.type = std::move(type);
    b.offset = plan_.arenas[0].bytes;
    b.first = first;
    b.last = last;
    plan_.arenas[0].bytes += (b.bytes + ir::kBufferAlignment - 1) / ir::kBufferAlignment * ir::kBufferAlignment;
    plan_.buffers.push_back(b);
    return static_cast<BufferId>(plan_.buffers.size()) - 1;
  }

  void variable(std::string name, VariableRole role, ir::Type type, std::string init, bool saved = true) {
    ir::Binding b;
    b.buffer = v_[name] = place(name, type, static_cast<BufferRole>(role));
    b.variable.name = std::move(name);
    b.variable.role = role;
    b.variable.type = std::move(type);
    b.variable.init = std::move(init);
    b.variable.saved = saved;
    plan_.bindings.push_back(b);
  }

  void variables() {
    const ir::Type table{DType::f32, {o_.vocab, o_.vocab}}, scalar{DType::f32, {}};
    variable("table", VariableRole::param, table, "normal(0, 0.1)");
    variable("table.m", VariableRole::state, table, "0");
    variable("step", VariableRole::state, {DType::i32, {}}, "0");
    variable("lr", VariableRole::hyper, scalar, "0.5");
    variable("steps", VariableRole::hyper, scalar, "100");
    variable("table.copy", VariableRole::compute, table, "0");
    variable("decode.carry.seen", VariableRole::state, scalar, "0", false);
    if (!o_.microbatches) return;
    variable("table.acc", VariableRole::state, table, "0", false);
    variable("loss.acc", VariableRole::state, scalar, "0", false);
    variable("count.acc", VariableRole::state, scalar, "0", false);
  }

  ir::Program& program(const std::string& name) {
    plan_.programs.push_back({name, {}, {}, {}});
    return plan_.programs.back();
  }
  ir::Call& call(ir::CallKind kind, std::string label, std::vector<ir::Access> args) {
    ir::Call c;
    c.kind = kind;
    c.label = std::move(label);
    c.args = std::move(args);
    plan_.programs.back().calls.push_back(std::move(c));
    return plan_.programs.back().calls.back();
  }
  void launch(const std::string& kernel, std::vector<ir::Access> args, std::vector<int64_t> sizes) {
    ir::Call& c = call(ir::CallKind::launch, kernel, std::move(args));
    c.kernel = kernel;
    c.sizes = std::move(sizes);
  }
  BufferId input(const std::string& name, ir::Type type) {
    const BufferId id = place(plan_.programs.back().name + "/" + name, std::move(type), BufferRole::input);
    plan_.programs.back().inputs.push_back({name, id});
    return id;
  }
  BufferId output(const std::string& name, ir::Type type) {
    const BufferId id = place(plan_.programs.back().name + "/" + name, std::move(type), BufferRole::output);
    plan_.programs.back().outputs.push_back({name, id});
    return id;
  }
  static ir::Access read(BufferId id) { return {id, AccessMode::read}; }
  static ir::Access write(BufferId id) { return {id, AccessMode::write}; }
  static ir::Access inout(BufferId id) { return {id, AccessMode::inout}; }

  void init() {
    program("init");
    for (const ir::Binding& b : plan_.bindings) {
      if (b.variable.role != VariableRole::compute)
        call(ir::CallKind::init, b.variable.name, {write(b.buffer)}).init = b.variable.init;
    }
  }
  void prepare() {
    program("prepare");
    call(ir::CallKind::copy, "table.copy", {read(v_["table"]), write(v_["table.copy"])});
  }

  void train(const std::string& name) {
    program(name);
    const ir::Type ids{DType::i32, {o_.batch, o_.time}}, scalar{DType::f32, {}}, table{DType::f32, {o_.vocab, o_.vocab}};
    const int64_t n = o_.vocab * o_.vocab;
    const bool accumulate = name != "train", updates = name == "train" || name == "last";
    const int last = name == "train" ? 1 : updates ? 4 : 3;
    const BufferId tokens = input("tokens", ids), targets = input("targets", ids);
    const BufferId loss = place(name + "/l", scalar, BufferRole::temp, 0, last),
                   count = place(name + "/c", scalar, BufferRole::temp, 0, last);
    const BufferId grad = place(name + "/g", table, BufferRole::temp, 0, last);
    launch("pass", {read(v_["table"]), read(tokens), read(targets), write(loss), write(count), write(grad)},
           {o_.batch * o_.time, o_.vocab});
    BufferId g = grad, l = loss, c = count;
    if (accumulate) {
      const int64_t first = name == "first";
      const AccessMode mode = first ? AccessMode::write : AccessMode::inout;
      launch("gather", {read(grad), {v_["table.acc"], mode}}, {n, first});
      launch("gather", {read(loss), {v_["loss.acc"], mode}}, {1, first});
      launch("gather", {read(count), {v_["count.acc"], mode}}, {1, first});
      g = v_["table.acc"], l = v_["loss.acc"], c = v_["count.acc"];
    }
    if (!updates) return;
    launch("update",
           {inout(v_["table"]), inout(v_["table.m"]), inout(v_["step"]), read(v_["lr"]), read(v_["steps"]), read(g), read(l),
            read(c), write(output("loss", scalar)), write(output("count", scalar)), write(output("grad_norm", scalar)),
            write(output("lr", scalar))},
           {n});
  }

  void eval() {
    program("eval");
    const ir::Type ids{DType::i32, {o_.batch, o_.time}}, scalar{DType::f32, {}};
    const BufferId tokens = input("tokens", ids), targets = input("targets", ids);
    launch("pass",
           {read(v_["table"]), read(tokens), read(targets), write(output("loss", scalar)), write(output("count", scalar)), {}},
           {o_.batch * o_.time, o_.vocab});
  }

  void decode() {
    program("decode");
    const BufferId tokens = input("tokens", {DType::i32, {1, 1}});
    launch("decode",
           {read(v_["table"]), read(tokens), inout(v_["decode.carry.seen"]),
            write(output("logits", {DType::f32, {1, 1, o_.vocab}}))},
           {o_.vocab});
  }

  BigramOptions o_;
  ir::Plan plan_;
  std::map<std::string, BufferId> v_;
};

}  // namespace

ir::Plan bigram_plan(const BigramOptions& options) { return Maker(options).make(); }

}  // namespace ingot::runtime
