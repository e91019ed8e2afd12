// wkv7: the RWKV-7 recurrence ("Goose", Peng et al. 2025), a delta rule with a decay for every key channel.
#include "ir/ops/wkv7.h"

#include <algorithm>
#include <string>

#include "ir/graph/builder.h"
#include "ir/ops/rows.h"

namespace ingot::ir {
namespace {

constexpr int kState = 6, kStarts = 7, kY = 0, kStateOut = 1, kSaved = 2;

void infer(InferContext& ctx) {
  need_wkv7_operands(ctx, kStarts);
  const Type& r = ctx.type(0);
  const Wkv7Sizes sizes = wkv7_sizes(r, ctx.attrs());
  if (ctx.has(kState)) {
    ctx.need_shape(kState, sizes.state_shape(), "the state is [batch, heads, value, key]");
    if (ctx.type(kState).dtype != DType::f32) ctx.fail("the state is always f32: " + ctx.show(kState));
  }
  ctx.result(r);
  ctx.result({DType::f32, sizes.state_shape()});
  if (!is_float(wkv7_saved_dtype(ctx.attrs()))) ctx.fail("saved_dtype must be a float's");
  ctx.result({wkv7_saved_dtype(ctx.attrs()), sizes.saved_shape()});
}

void reference(ReferenceContext& ctx) {
  const Wkv7Sizes z = wkv7_sizes(ctx.operand(0).type, ctx.attrs);
  const int64_t n = z.head;
  std::vector<double> state(static_cast<size_t>(n * n)), sa(static_cast<size_t>(n));
  for (int64_t s = 0; s < z.batch; ++s) {
    for (int64_t h = 0; h < z.heads; ++h) {
      std::fill(state.begin(), state.end(), 0);
      if (ctx.has(kState)) std::copy_n(&ctx.operand(kState).data[z.state(s, h)], n * n, state.begin());
      for (int64_t t = 0; t < z.time; ++t) {
        if (t % z.chunk == 0) {
          const DType stored = wkv7_saved_dtype(ctx.attrs);
          std::transform(state.begin(), state.end(), &ctx.result(kSaved).data[z.saved(s, h, t / z.chunk)],
                         [&](double x) { return ctx.round ? round_to(stored, x) : x; });
        }
        if (ctx.has(kStarts) && ctx.operand(kStarts).data[s * z.time + t] != 0) std::fill(state.begin(), state.end(), 0);
        const Wkv7Token token = wkv7_token(ctx.in, z.row(s, t, h));
        wkv7_step(token, n, state.data(), sa.data());
        for (int64_t i = 0; i < n; ++i) {
          double& y = ctx.result(kY).data[z.row(s, t, h) + i];
          for (int64_t j = 0; j < n; ++j) y += state[i * n + j] * token.r[j];
        }
      }
      std::copy(state.begin(), state.end(), &ctx.result(kStateOut).data[z.state(s, h)]);
    }
  }
}

void gradient(GradientContext& ctx) {
  refuse_gradient_of(ctx, kSaved);
  Builder& b = ctx.b();
  std::vector<ValueId> operands;
  for (int i = 0; i < 6; ++i) operands.push_back(ctx.operand(i));
  operands.push_back(ctx.result(kSaved));
  const ValueId dy = ctx.grad(kY), dstate = ctx.grad(kStateOut);
  operands.push_back(dy == kNone ? kNone : b.cast(dy, b.type(ctx.result(kY)).dtype));
  operands.push_back(dstate == kNone ? kNone : to_f32(b, dstate));
  operands.push_back(ctx.has(kStarts) ? ctx.operand(kStarts) : kNone);
  const std::vector<ValueId> grads = b.op("wkv7_grad", operands, ctx.attrs()).results;
  for (int i = 0; i <= kState; ++i) {
    if (i == kState && !ctx.has(kState)) continue;
    if (ctx.wants(i)) ctx.set(i, b.cast(grads[static_cast<size_t>(i)], ctx.grad_dtype(i)));
  }
}

/// Per token and head: S a, the decay, two outer products, S r.
double flops(const Graph& graph, const Op& op) {
  const Type& r = graph.type(op.operands[0]);
  return 9.0 * static_cast<double>(r.elements()) * static_cast<double>(r.shape[3]);
}

std::string example(const std::string& type, const std::string& state, const std::string& saved, const std::string& more = "",
                    const std::string& ports = "", const std::string& chunk = "16") {
  std::string text = more;
  for (const char* name : {"r", "w", "k", "v", "a", "b"}) text += std::string("input %") + name + ": " + type + "\n";
  return text + "%y, %s, %c = wkv7(%r, %w, %k, %v, %a, %b" + ports + ") {chunk: " + chunk + "}: " + type + ", " + state + ", " +
         saved;
}

void add_examples(OpDef& op) {
  const std::string one = "f32[1, 1, 16, 16]", two = "f32[2, 2, 16, 16]";
  op.examples = {
      {example("f32[1, 1, 1, 16]", one, "f32[1, 1, 1, 16, 16]"), -0.7, 0.7},
      // Time is no multiple of the chunk.
      {example("f32[1, 5, 1, 16]", one, "f32[1, 1, 3, 16, 16]", "", "", "2"), -0.7, 0.7},
      {example("f32[1, 5, 1, 16]", one, "f32[1, 1, 3, 16, 16]", "", "", "2, segments: 2"), -0.7, 0.7},
      {example("f32[2, 3, 2, 16]", two, "f32[2, 2, 1, 16, 16]", "input %s0: f32[2, 2, 16, 16]\n", ", %s0"), -0.7, 0.7},
      {example("f32[1, 1, 1, 16]", one, "f32[1, 1, 1, 16, 16]", "input %s0: f32[1, 1, 16, 16]\n", ", %s0", "1"), -0.7, 0.7},
      {example("f32[2, 5, 1, 16]", "f32[2, 1, 16, 16]", "f32[2, 1, 3, 16, 16]",
               "range d 0..1\ninput %s0: f32[2, 1, 16, 16]\ninput %d: i32[2, 5]\n", ", %s0, %d", "2"),
       -0.7, 0.7},
      {example("f32[1, 4, 1, 16]", one, "f32[1, 1, 1, 16, 16]", "range d 0..1\ninput %d: i32[1, 4]\n", ", none, %d"), -0.7, 0.7},
      {example("f32[1, 2, 1, 20]", "f32[1, 1, 20, 20]", "f32[1, 1, 1, 20, 20]"), -0.7, 0.7},
      {example("bf16[1, 3, 2, 16]", "f32[1, 2, 16, 16]", "f32[1, 2, 1, 16, 16]"), -0.7, 0.7},
  };
  op.rejects = {
      {example("f32[1, 2, 1, 8]", "f32[1, 1, 8, 8]", "f32[1, 1, 1, 8, 8]"), "the head size must be 16 to 128"},
      {example("f32[1, 2, 1, 256]", "f32[1, 1, 256, 256]", "f32[1, 1, 1, 256, 256]"), "the head size must be 16 to 128"},
      {example("f32[1, 2, 1, 16]", one, "f32[1, 1, 1, 16, 16]", "input %s0: bf16[1, 1, 16, 16]\n", ", %s0"), "always f32"},
      {example("f32[1, 2, 1, 16]", one, "f32[1, 1, 1, 16, 16]", "input %d: i32[2]\n", ", none, %d"), "starts marks positions"},
      {example("f32[1, 2, 1, 16]", one, "f32[1, 1, 1, 16, 16]", "", "", "0"), "chunk must be at least 1"},
      {example("f32[1, 2, 1, 16]", one, "f32[1, 1, 1, 16, 16]", "", "", "16, segments: 0"), "segments must be at least 1"},
  };
}

}  // namespace

void define_wkv7(OpTable& table) {
  OpDef& op = table.add("wkv7");
  op.summary =
      "For each head, with a state S [value, key] that starts as zero: d = exp(-e^(-1/2) sigmoid(w)); "
      "S_t = S_{t-1} diag(d_t) + (S_{t-1} a_t) b_t^T + v_t k_t^T; y_t = S_t r_t. A document start at t makes S_{t-1} zero.";
  op.operand("r", "[batch, time, heads, head]: what is read");
  op.operand("w", "the raw decay logit");
  op.operand("k", "the key written");
  op.operand("v", "the value written");
  op.operand("a", "where the delta rule reads (-kk in the model)");
  op.operand("b", "where it writes back (kk * a in the model)");
  op.port_operand("state", "f32 [batch, heads, value, key]: the state before the first position");
  op.port_operand("starts", "i32 [batch, time]: nonzero where a document starts");
  op.attr("chunk", AttrKind::integer, int64_t{32}, "positions between saved states");
  op.optional_attr("saved_dtype", AttrKind::dtype, "what saved states are stored in; f32 when absent");
  op.optional_attr("segments", AttrKind::integer, "into how many parts kernels that can may cut time, to work on them at once");
  op.result("y", "[batch, time, heads, head]");
  op.hidden_result("state_out", "f32 [batch, heads, value, key]: the state after the last position");
  op.hidden_result("saved",
                   "[batch, heads, chunks, value, key]: the state carried into each chunk (before a start there clears it)");
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = KernelLowering{"wkv7"};
  op.carry = {{"state", "state_out"}};
  op.starts = "starts";
  op.flops = flops;
  add_examples(op);
}

}  // namespace ingot::ir
