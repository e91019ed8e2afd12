#include "tests/common/random_parts.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace ingot::tests {
namespace {

using ir::DType;

const std::vector<DType> kDTypes = {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::boolean};

}  // namespace

std::string odd_text(Random& random) {
  static const std::vector<std::string> pieces = {"a",    "B7",   "_",    ".",  " ",     "\"",   "\\",     "\n",
                                                  "\t",   "%",    "}",    "//", "größe", "变量", "🙂",   std::string("\0", 1),
                                                  "\x7f", "loc(", "\xc3", "0",  "none",  "'",    "{x: 1}", "\r"};
  std::string text;
  for (int64_t i = random.below(6); i > 0; --i) text += random.pick(pieces);
  return text;
}

std::string RandomParts::name() {
  static const std::vector<std::string> plain = {"h",   "blocks.0.att.w0", "x",  "none", "input", "0", "loc",
                                                 "inf", "h.grad",          "_t", "1e5",  "yield"};
  if (random_.chance(0.6)) return random_.pick(plain);
  std::string name = odd_text(random_);
  return name.empty() ? "v" : name;
}

ir::Loc RandomParts::loc() {
  if (!odd_) return {};
  static const std::vector<std::string> files = {"models/rwkv7.yaml", "a b.yaml",     "größe.yaml",
                                                 "q\"uote\\.yaml",    "bad\xff.yaml", ""};
  ir::Loc loc;
  if (random_.chance(0.7))
    loc = ir::make_loc(random_.pick(files), static_cast<int>(random_.below(1000)), static_cast<int>(random_.below(200)));
  if (random_.chance(0.3)) loc.origin = ir::intern(random_.chance(0.5) ? "gradient" : odd_text(random_));
  return loc;
}

ir::Phase RandomParts::phase() {
  return random_.pick(
      std::vector<ir::Phase>{ir::Phase::forward, ir::Phase::recompute, ir::Phase::backward, ir::Phase::optimizer});
}

double RandomParts::real() {
  using limits = std::numeric_limits<double>;
  static const std::vector<double> usual = {0.0, 1.0, 0.5, -2.0, 1e-5, 0.1};
  static const std::vector<double> odd = {-0.0,
                                          limits::infinity(),
                                          -limits::infinity(),
                                          limits::quiet_NaN(),
                                          limits::denorm_min(),
                                          limits::max(),
                                          limits::lowest(),
                                          1.0 / 3,
                                          1e22,
                                          1e23,
                                          123456789012345678.0};
  return odd_ && random_.chance(0.5) ? random_.pick(odd) : random_.pick(usual);
}

int64_t RandomParts::integer(const ir::Type& about) {
  using limits = std::numeric_limits<int64_t>;
  if (odd_ && random_.chance(0.05))
    return random_.pick(std::vector<int64_t>{limits::max(), limits::min(), int64_t{1} << 40, -100});
  if (!about.shape.empty() && random_.chance(0.3)) return random_.pick(about.shape);
  return random_.below(5) - 1;
}

/// The same elements under other sizes: neighbours joined, ones put in.
std::vector<int64_t> RandomParts::regrouped(const ir::Shape& shape) {
  std::vector<int64_t> sizes;
  for (int64_t size : shape) {
    if (!sizes.empty() && random_.chance(0.4)) {
      sizes.back() *= size;
    } else {
      sizes.push_back(size);
    }
    if (random_.chance(0.15)) sizes.push_back(1);
  }
  return sizes;
}

std::vector<int64_t> RandomParts::integers(const ir::Type& about) {
  const auto rank = static_cast<int64_t>(about.shape.size());
  std::vector<int64_t> list;
  switch (random_.below(7)) {
    case 0:
      return about.shape;
    case 1:
      return regrouped(about.shape);
    case 2:  // a permutation
      list.resize(about.shape.size());
      std::iota(list.begin(), list.end(), 0);
      for (int64_t i = rank - 1; i > 0; --i)
        std::swap(list[static_cast<size_t>(i)], list[static_cast<size_t>(random_.below(i + 1))]);
      return list;
    case 3:  // some axes
      for (int64_t i = 0; i < rank; ++i) {
        if (random_.chance(0.5)) list.push_back(random_.chance(0.2) ? i - rank : i);
      }
      return list;
    case 4:  // a place inside
      for (int64_t size : about.shape) list.push_back(random_.chance(0.6) ? 0 : random_.below(size));
      return list;
    case 5:  // a part of each size
      for (int64_t size : about.shape) list.push_back(1 + random_.below(size));
      return list;
    default:  // broadcast: more in front
      list = about.shape;
      list.insert(list.begin(), 1 + random_.below(3));
      return list;
  }
}

ir::Attr RandomParts::attr(ir::AttrKind kind, const ir::Type& about) {
  switch (kind) {
    case ir::AttrKind::boolean:
      return random_.chance(0.5);
    case ir::AttrKind::integer:
      return integer(about);
    case ir::AttrKind::real:
      return real();
    case ir::AttrKind::text:
      return odd_ ? odd_text(random_) : std::string("row");
    case ir::AttrKind::dtype:
      return random_.pick(kDTypes);
    case ir::AttrKind::integers:
      return integers(about);
    case ir::AttrKind::reals:
      return std::vector<double>{real(), real()};
  }
  return false;
}

ir::Attrs RandomParts::attrs(const ir::OpDef& def, const ir::Type* about) {
  static const ir::Type kSome{DType::f32, {2, 3}};
  ir::Attrs attrs;
  for (const ir::AttrDef& attr_def : def.attrs) {
    if (attr_def.required || random_.chance(0.5)) attrs.set(attr_def.name, attr(attr_def.kind, about ? *about : kSome));
  }
  return attrs;
}

ir::Type RandomParts::related(const ir::Type& type) {
  ir::Type other = type;
  const auto rank = static_cast<int64_t>(type.shape.size());
  switch (random_.below(6)) {
    case 0:
      break;
    case 1:
      other.shape.erase(other.shape.begin(), other.shape.begin() + random_.below(rank + 1));
      break;
    case 2:
      other.shape.resize(static_cast<size_t>(random_.below(rank + 1)));
      break;
    case 3:
      if (rank >= 2) std::swap(other.shape[static_cast<size_t>(rank - 1)], other.shape[static_cast<size_t>(rank - 2)]);
      break;
    case 4:
      for (int64_t& size : other.shape) size = random_.chance(0.3) ? 1 : size;
      break;
    default:
      other = {DType::i32, type.shape};
      if (rank > 0 && random_.chance(0.5)) other.shape.pop_back();
  }
  if (random_.chance(0.1)) other.dtype = random_.pick(kDTypes);
  return other;
}

ir::Variable RandomParts::variable(std::string name) {
  ir::Variable variable;
  variable.name = std::move(name);
  variable.role =
      random_.pick(std::vector<ir::VariableRole>{ir::VariableRole::param, ir::VariableRole::param, ir::VariableRole::state,
                                                 ir::VariableRole::hyper, ir::VariableRole::compute});
  variable.type.dtype = random_.chance(0.8) ? DType::f32 : random_.pick(kDTypes);
  for (int64_t i = random_.below(3); i > 0; --i) variable.type.shape.push_back(1 + random_.below(4));
  variable.init = odd_ ? odd_text(random_) : "0";
  if (odd_) {
    variable.trainable = random_.chance(0.8);
    variable.saved = random_.chance(0.8);
    variable.lr_factor = random_.chance(0.5) ? 1 : real();
    variable.decay_factor = random_.chance(0.5) ? 1 : real();
  }
  variable.loc = loc();
  return variable;
}

ir::Module RandomParts::declarations(bool variables) {
  ir::Module module;
  module.name = odd_ ? odd_text(random_) : "random";
  for (int64_t i = variables ? random_.below(5) : 0; i > 0; --i) {
    std::string wanted = odd_ ? name() : "w" + std::to_string(i);
    if (!module.find_variable(wanted)) module.variables.push_back(variable(std::move(wanted)));
  }
  if (!odd_) return module;
  for (int64_t i = random_.below(3); i > 0; --i) {
    ir::InputRange range{name(), integer({}), integer({}), {}, loc()};
    for (int64_t k = random_.below(3); k > 0; --k) range.also.push_back(integer({}));
    module.ranges.push_back(std::move(range));
  }
  if (random_.chance(0.5)) module.optimizer.rule = odd_text(random_), module.optimizer.rule_loc = loc();
  if (random_.chance(0.5)) module.optimizer.schedule = odd_text(random_), module.optimizer.schedule_loc = loc();
  if (random_.chance(0.5)) module.optimizer.clip = odd_text(random_), module.optimizer.clip_loc = loc();
  for (int64_t i = random_.below(3); i > 0; --i) module.precision.pin.push_back(odd_text(random_));
  for (int64_t i = random_.below(3); i > 0; --i) module.checkpoint_ignore.push_back(odd_text(random_));
  for (int64_t i = random_.below(3); i > 0; --i) module.info.emplace_back(odd_text(random_), odd_text(random_));
  return module;
}

}  // namespace ingot::tests
