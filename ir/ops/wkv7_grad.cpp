// wkv7_grad: backpropagation through wkv7. States inside a chunk are computed again from the saved one, forward, so nothing
// is ever divided by a decay.
#include <algorithm>
#include <string>

#include "ir/graph/builder.h"
#include "ir/ops/wkv7.h"

namespace ingot::ir {
namespace {

constexpr int kSaved = 6, kDy = 7, kDstateOut = 8, kStarts = 9;
constexpr int kDr = 0, kDw = 1, kDk = 2, kDv = 3, kDa = 4, kDb = 5, kDstate = 6;

void infer(InferContext& ctx) {
  need_wkv7_operands(ctx, kStarts);
  const Type& r = ctx.type(0);
  const Wkv7Sizes sizes = wkv7_sizes(r, ctx.attrs());
  ctx.need_shape(kSaved, sizes.saved_shape(), "one saved state for each chunk");
  if (ctx.type(kSaved).dtype != wkv7_saved_dtype(ctx.attrs())) {
    ctx.fail("saved states must be " + std::string(dtype_name(wkv7_saved_dtype(ctx.attrs()))) + ": " + ctx.show(kSaved));
  }
  if (ctx.has(kDy) && ctx.type(kDy) != r) ctx.fail("dy must have the type of r: " + ctx.show(kDy) + ", " + ctx.show(0));
  if (ctx.has(kDstateOut)) {
    ctx.need_shape(kDstateOut, sizes.state_shape(), "the state is [batch, heads, value, key]");
    if (ctx.type(kDstateOut).dtype != DType::f32) ctx.fail("the state's gradient is always f32: " + ctx.show(kDstateOut));
  }
  for (int i = 0; i < 6; ++i) ctx.result(r);
  ctx.result({DType::f32, sizes.state_shape()});
}

using Matrix = std::vector<double>;  // [value][key]

/// One step of the chain rule. `before` is S_{t-1} (zero at a start), `after` S_t, `g` arrives as dL/dS_t without this
/// step's own reading and leaves as dL/dS_{t-1}.
void step_back(ReferenceContext& ctx, const Wkv7Token& token, int64_t row, int64_t n, const Matrix& before, const Matrix& after,
               const double* sa, Matrix& g) {
  const double* dy = ctx.has(kDy) ? &ctx.operand(kDy).data[row] : nullptr;
  const auto out = [&](int result) { return &ctx.result(result).data[row]; };
  std::vector<double> dsa(static_cast<size_t>(n)), dd(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      if (dy != nullptr) {
        out(kDr)[j] += after[i * n + j] * dy[i];
        g[i * n + j] += dy[i] * token.r[j];
      }
      const double gij = g[i * n + j];
      out(kDk)[j] += gij * token.v[i];
      out(kDv)[i] += gij * token.k[j];
      out(kDb)[j] += gij * sa[i];
      dsa[i] += gij * token.b[j];
      dd[j] += gij * before[i * n + j];
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      out(kDa)[j] += before[i * n + j] * dsa[i];
      g[i * n + j] = g[i * n + j] * wkv7_decay(token.w[j]) + dsa[i] * token.a[j];
    }
  }
  for (int64_t j = 0; j < n; ++j) {
    const double s = wkv7_sigmoid(token.w[j]);
    out(kDw)[j] = -kDecayScale * dd[j] * wkv7_decay(token.w[j]) * s * (1 - s);
  }
}

void reference(ReferenceContext& ctx) {
  const Wkv7Sizes z = wkv7_sizes(ctx.operand(0).type, ctx.attrs);
  const int64_t n = z.head;
  const auto starts_at = [&](int64_t s, int64_t t) { return ctx.has(kStarts) && ctx.operand(kStarts).data[s * z.time + t] != 0; };
  std::vector<Matrix> before(static_cast<size_t>(z.chunk)), after(static_cast<size_t>(z.chunk));
  Matrix state(static_cast<size_t>(n * n)), g(state.size()), sa(static_cast<size_t>(z.chunk * n));
  for (int64_t s = 0; s < z.batch; ++s) {
    for (int64_t h = 0; h < z.heads; ++h) {
      std::fill(g.begin(), g.end(), 0);
      if (ctx.has(kDstateOut)) std::copy_n(&ctx.operand(kDstateOut).data[z.state(s, h)], n * n, g.begin());
      for (int64_t c = z.chunks() - 1; c >= 0; --c) {
        const int64_t first = c * z.chunk, last = std::min(first + z.chunk, z.time) - 1;
        std::copy_n(&ctx.operand(kSaved).data[z.saved(s, h, c)], n * n, state.begin());
        for (int64_t t = first; t <= last; ++t) {
          if (starts_at(s, t)) std::fill(state.begin(), state.end(), 0);
          before[t - first] = state;
          wkv7_step(wkv7_token(ctx.in, z.row(s, t, h)), n, state.data(), &sa[(t - first) * n]);
          after[t - first] = state;
        }
        for (int64_t t = last; t >= first; --t) {
          const int64_t row = z.row(s, t, h);
          step_back(ctx, wkv7_token(ctx.in, row), row, n, before[t - first], after[t - first], &sa[(t - first) * n], g);
          if (starts_at(s, t)) std::fill(g.begin(), g.end(), 0);
        }
      }
      std::copy(g.begin(), g.end(), &ctx.result(kDstate).data[z.state(s, h)]);
    }
  }
}

/// Per token and head: the state again, then ten products of N x N.
double flops(const Graph& graph, const Op& op) {
  const Type& r = graph.type(op.operands[0]);
  return 26.0 * static_cast<double>(r.elements()) * static_cast<double>(r.shape[3]);
}

std::string example(const std::string& type, const std::string& state, const std::string& saved, const std::string& more,
                    const std::string& rest, const std::string& chunk) {
  std::string text = more + "input %c: " + saved + "\n";
  for (const char* name : {"r", "w", "k", "v", "a", "b"}) text += std::string("input %") + name + ": " + type + "\n";
  text += "%dr, %dw, %dk, %dv, %da, %db, %ds = wkv7_grad(%r, %w, %k, %v, %a, %b, %c, " + rest + ") {chunk: " + chunk + "}: ";
  for (int i = 0; i < 6; ++i) text += type + ", ";
  return text + state;
}

}  // namespace

void define_wkv7_grad(OpTable& table) {
  OpDef& op = table.add("wkv7_grad");
  op.summary =
      "Gradient of wkv7. With G = dL/dS_t, from the last position back: dr = S_t^T dy; G += dy r^T; dk = G^T v; dv = G k; "
      "db = G^T sa; dsa = G b; da = S_{t-1}^T dsa; dd = colsum(G * S_{t-1}); G = G diag(d) + dsa a^T; "
      "dw = -e^(-1/2) dd d sigmoid(w) (1 - sigmoid(w)). At a document start S_{t-1} and the G handed back are zero.";
  for (const char* name : {"r", "w", "k", "v", "a", "b"}) op.operand(name, "as in wkv7");
  op.operand("saved", "[batch, heads, chunks, value, key]: wkv7's third result");
  op.optional_operand("dy", "gradient of y");
  op.optional_operand("dstate_out", "f32: gradient of the last state");
  op.optional_operand("starts", "as in wkv7");
  op.attr("chunk", AttrKind::integer, int64_t{32}, "positions between saved states");
  op.optional_attr("saved_dtype", AttrKind::dtype, "what saved states are stored in; f32 when absent");
  op.optional_attr("segments", AttrKind::integer, "into how many parts kernels that can may cut time, to work on them at once");
  for (const char* name : {"dr", "dw", "dk", "dv", "da", "db"}) op.result(name, "gradient of that operand");
  op.result("dstate", "f32: gradient of the first state");
  op.levels = kTrainUp;
  op.infer = infer;
  op.reference = reference;
  op.lowering = KernelLowering{"wkv7_grad"};
  op.flops = flops;
  const std::string one = "f32[1, 1, 16, 16]", saved = "f32[1, 1, 3, 16, 16]", dy = "input %dy: f32[1, 5, 1, 16]\n",
                    ds = "input %dso: f32[1, 1, 16, 16]\n", starts = "range d 0..1\ninput %d: i32[1, 5]\n",
                    x = "f32[1, 5, 1, 16]";
  op.examples = {
      {example(x, one, saved, dy, "%dy", "2"), -0.7, 0.7},
      {example(x, one, saved, ds, "none, %dso", "2"), -0.7, 0.7},
      {example(x, one, saved, starts + dy + ds, "%dy, %dso, %d", "2"), -0.7, 0.7},
      {example("f32[2, 1, 2, 16]", "f32[2, 2, 16, 16]", "f32[2, 2, 1, 16, 16]", "input %dy: f32[2, 1, 2, 16]\n", "%dy", "16"),
       -0.7, 0.7},
      {example("bf16[1, 3, 1, 20]", "f32[1, 1, 20, 20]", "f32[1, 1, 1, 20, 20]", "input %dy: bf16[1, 3, 1, 20]\n", "%dy", "16"),
       -0.7, 0.7},
  };
  op.rejects = {
      {example(x, one, "f32[1, 1, 2, 16, 16]", dy, "%dy", "2"), "one saved state for each chunk"},
      {example(x, one, saved, "input %dy: bf16[1, 5, 1, 16]\n", "%dy", "2"), "dy must have the type of r"},
      {example(x, one, saved, dy, "%dy", "2, segments: 0"), "segments must be at least 1"},
  };
}

}  // namespace ingot::ir
