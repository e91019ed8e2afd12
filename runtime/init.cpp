#include "runtime/init.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "runtime/convert.h"
#include "runtime/init_expr.h"
#include "runtime/orthogonal.h"
#include "runtime/pool.h"
#include "runtime/random.h"

namespace ingot::runtime {
namespace {

constexpr int64_t kBlock = 512;  // elements computed together; a multiple of 4 (Random's words)

/// One value per element of a block, or one for all of them.
struct Field {
  bool uniform = true;
  double value = 0;
  std::vector<double> values;

  double at(int64_t i) const { return uniform ? value : values[static_cast<size_t>(i)]; }
};

double apply_function(const std::string& name, const double* x, size_t count) {
  if (name == "min") return *std::min_element(x, x + count);
  if (name == "max") return *std::max_element(x, x + count);
  if (name == "pow") return std::pow(x[0], x[1]);
  if (name == "select") return x[0] != 0 ? x[1] : x[2];
  if (name == "abs") return std::fabs(x[0]);
  if (name == "sqrt") return std::sqrt(x[0]);
  if (name == "exp") return std::exp(x[0]);
  if (name == "log") return std::log(x[0]);
  if (name == "expm1") return std::expm1(x[0]);
  if (name == "log1p") return std::log1p(x[0]);
  if (name == "floor") return std::floor(x[0]);
  if (name == "ceil") return std::ceil(x[0]);
  if (name == "round") return std::nearbyint(x[0]);
  if (name == "sin") return std::sin(x[0]);
  if (name == "cos") return std::cos(x[0]);
  if (name == "tanh") return std::tanh(x[0]);
  throw ir::InternalError("initial value: function " + name);
}

double apply_operator(const std::string& op, const double* x, size_t count) {
  if (op == "-") return count == 1 ? -x[0] : x[0] - x[1];
  if (op == "not") return x[0] == 0;
  if (op == "+") return x[0] + x[1];
  if (op == "*") return x[0] * x[1];
  if (op == "/") return x[0] / x[1];
  if (op == "%") return x[0] - std::floor(x[0] / x[1]) * x[1];
  if (op == "<") return x[0] < x[1];
  if (op == "<=") return x[0] <= x[1];
  if (op == ">") return x[0] > x[1];
  if (op == ">=") return x[0] >= x[1];
  if (op == "==") return x[0] == x[1];
  if (op == "!=") return x[0] != x[1];
  if (op == "and") return x[0] != 0 && x[1] != 0;
  if (op == "or") return x[0] != 0 || x[1] != 0;
  throw ir::InternalError("initial value: operator " + op);
}

/// What all blocks share: the tree, the shape, and the orthogonal fields, which are made whole.
struct Work {
  const InitRequest& request;
  InitExpr init;
  int64_t count = 0, last = 1, before = 1;  ///< elements; sizes of the last axis and the one before
  std::map<int, std::vector<float>> orthogonals;

  Random random(int draw) const { return Random(random_key(request.seed, request.name, draw)); }
};

/// Evaluates one block of elements.
class Block {
 public:
  Block(const Work& work, int64_t begin) : work_(work), begin_(begin), size_(std::min(kBlock, work.count - begin)) {}
  Field value() { return eval(*work_.init.value); }
  int64_t size() const { return size_; }

 private:
  Field eval(const ir::Expr& e) {
    if (e.kind == ir::ExprKind::number) return {true, e.number, {}};
    if (e.kind == ir::ExprKind::boolean) return {true, e.flag ? 1.0 : 0.0, {}};
    if (e.kind == ir::ExprKind::name) return name(e.text);
    const int draw = e.kind == ir::ExprKind::call ? work_.init.draw_index(e) : -1;
    if (draw >= 0) return this->draw(e, draw);
    std::vector<Field> args;
    for (const ir::ExprPtr& arg : e.args) args.push_back(eval(*arg));
    const bool call = e.kind == ir::ExprKind::call;
    return map(args, [&](const double* x) {
      return call ? apply_function(e.text, x, args.size()) : apply_operator(e.text, x, args.size());
    });
  }

  template <typename F>
  Field map(const std::vector<Field>& args, F&& apply) const {
    std::vector<double> x(args.size());
    Field out;
    out.uniform = std::all_of(args.begin(), args.end(), [](const Field& f) { return f.uniform; });
    if (!out.uniform) out.values.resize(static_cast<size_t>(size_));
    for (int64_t i = 0; i < (out.uniform ? 1 : size_); ++i) {
      for (size_t a = 0; a < args.size(); ++a) x[a] = args[a].at(i);
      (out.uniform ? out.value : out.values[static_cast<size_t>(i)]) = apply(x.data());
    }
    return out;
  }

  Field name(const std::string& text) {
    if (text != "i" && text != "j") {
      const auto known = lets_.find(text);
      return known != lets_.end() ? known->second : lets_.emplace(text, eval(**work_.init.find_let(text))).first->second;
    }
    Field out{false, 0, std::vector<double>(static_cast<size_t>(size_))};
    for (int64_t k = 0; k < size_; ++k) {
      const int64_t element = begin_ + k;
      const int64_t index = text == "i" ? element % work_.last : element / work_.last % work_.before;
      out.values[static_cast<size_t>(k)] = static_cast<double>(index);
    }
    return out;
  }

  Field draw(const ir::Expr& e, int index) {
    Field out{false, 0, std::vector<double>(static_cast<size_t>(size_))};
    if (e.text == "orthogonal") {
      const auto field = work_.orthogonals.find(index);
      if (field == work_.orthogonals.end()) throw ir::UserError(e.loc, "an orthogonal matrix cannot be part of another's gain");
      std::copy_n(field->second.data() + begin_, size_, out.values.begin());
      return out;
    }
    const bool normal = e.text == "normal";
    const Random random = work_.random(index);
    if (normal) {
      random.normals(static_cast<uint64_t>(begin_), size_, out.values.data());
    } else {
      random.uniforms(static_cast<uint64_t>(begin_), size_, out.values.data());
    }
    const Field a = eval(*e.args[0]), b = eval(*e.args[1]);
    for (int64_t i = 0; i < size_; ++i) {
      double& x = out.values[static_cast<size_t>(i)];
      x = normal ? a.at(i) + b.at(i) * x : a.at(i) + (b.at(i) - a.at(i)) * x;
    }
    return out;
  }

  const Work& work_;
  int64_t begin_, size_;
  std::map<std::string, Field> lets_;
};

double gain_of(const Work& work, const ir::Expr& call) {
  Work gain{work.request, work.init, 1, 1, 1, {}};
  gain.init.value = call.args[0];
  const Field value = Block(gain, 0).value();
  if (!value.uniform) throw ir::UserError(call.loc, "the gain of orthogonal is one number for the whole matrix");
  if (!std::isfinite(value.value)) throw ir::UserError(call.loc, "the gain of orthogonal is not finite");
  return value.value;
}

void make_orthogonal(const Work& work, int draw, float* to) {
  const ir::Expr& call = *work.init.draws[static_cast<size_t>(draw)];
  if (work.request.type.rank() < 2) {
    throw ir::UserError(call.loc,
                        fmt::format("orthogonal makes a matrix; {} is {}", work.request.name, work.request.type.text()));
  }
  orthogonal(to, work.count / work.last, work.last, gain_of(work, call), random_key(work.request.seed, work.request.name, draw),
             work.request.threads);
}

void store(const Work& work, int64_t begin, int64_t size, const Field& field, void* buffer) {
  const ir::DType dtype = work.request.type.dtype;
  const int64_t width = ir::dtype_bytes(dtype);
  for (int64_t i = 0; i < size; ++i) {
    if (!std::isfinite(field.at(i))) {
      throw ir::UserError(work.request.loc, fmt::format("the initial value of {} is not finite at element {}: `{}`",
                                                        work.request.name, begin + i, work.request.expression));
    }
    if (dtype == ir::DType::f32) {
      static_cast<float*>(buffer)[begin + i] = static_cast<float>(field.at(i));
    } else {
      store_double(dtype, field.at(i), static_cast<std::byte*>(buffer) + (begin + i) * width);
    }
  }
}

void fill_blocks(const Work& work, void* buffer) {
  Pool::of(work.request.threads).run(work.count, kBlock * 8, [&](int64_t first, int64_t last, int) {
    for (int64_t begin = first; begin < last; begin += kBlock) {
      Block block(work, begin);
      store(work, begin, block.size(), block.value(), buffer);
    }
  });
}

}  // namespace

void fill_initial(const InitRequest& request, void* buffer) {
  Work work{request, parse_init(request.expression, request.loc), request.type.elements(), 1, 1, {}};
  const ir::Shape& shape = request.type.shape;
  if (!shape.empty()) work.last = shape.back();
  if (shape.size() > 1) work.before = shape[shape.size() - 2];
  const ir::Expr& root = *work.init.value;
  if (root.kind == ir::ExprKind::number && root.number == 0) {  // the moments: as many bytes as the parameters, twice
    std::fill_n(static_cast<std::byte*>(buffer), request.type.bytes(), std::byte{0});
    return;
  }
  const int direct = root.kind == ir::ExprKind::call && root.text == "orthogonal" ? work.init.draw_index(root) : -1;
  if (direct >= 0 && request.type.dtype == ir::DType::f32) return make_orthogonal(work, direct, static_cast<float*>(buffer));
  for (int draw = 0; draw < static_cast<int>(work.init.draws.size()); ++draw) {
    if (work.init.draws[static_cast<size_t>(draw)]->text != "orthogonal") continue;
    auto& field = work.orthogonals[draw];
    field.resize(static_cast<size_t>(work.count));
    make_orthogonal(work, draw, field.data());
  }
  fill_blocks(work, buffer);
}

}  // namespace ingot::runtime
