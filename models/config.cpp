#include "models/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/error.h"
#include "models/pieces.h"

namespace ingot::models {
namespace {

constexpr size_t kLongestChain = 100;  // of keys that use one another: evaluation recurses

enum class Kind : uint8_t { number, boolean, text, list };

/// What a setting holds, as its expression shows.
Kind kind_of(const ir::Expr& e) {
  if (e.kind == ir::ExprKind::boolean) return Kind::boolean;
  if (e.kind == ir::ExprKind::text) return Kind::text;
  if (e.kind == ir::ExprKind::list || (e.kind == ir::ExprKind::call && e.text == "cycle")) return Kind::list;
  const bool logic = (e.kind == ir::ExprKind::unary && e.text == "not") ||
                     (e.kind == ir::ExprKind::binary && std::string_view("+-*/%@").find(e.text) == std::string_view::npos);
  return logic ? Kind::boolean : Kind::number;
}

std::string_view kind_text(Kind kind) {
  static constexpr std::string_view kNames[] = {"a number", "true or false", "text", "a list"};
  return kNames[static_cast<size_t>(kind)];
}

ir::ExprPtr override_value(const Setting& setting, const std::string& text, ir::Loc loc) {
  const Kind kind = setting.value ? kind_of(*setting.value) : Kind::number;
  if (kind == Kind::text) {
    auto value = std::make_shared<ir::Expr>();
    value->kind = ir::ExprKind::text;
    value->loc = loc;
    value->text = text;
    return value;
  }
  if (text.empty()) throw ir::UserError(loc, fmt::format("{}: the value is missing", setting.name.text));
  const ir::ExprPtr value = ir::parse_expr(text, loc);
  const bool literal = value->kind != ir::ExprKind::name && value->kind != ir::ExprKind::call;
  if (setting.value && setting.value->kind != ir::ExprKind::name && literal && kind_of(*value) != kind) {
    throw ir::UserError(loc, fmt::format("`{}` is {}, not {}", setting.name.text, kind_text(kind), text));
  }
  return value;
}

struct Range {
  std::string_view name;
  double least, most;
  bool open_least, open_most, whole;
  std::string_view text;
};
constexpr double kInf = HUGE_VAL;
/// What train scalars may hold, by the names that recipes give them; others are any number.
constexpr Range kRanges[] = {{"lr", 0, kInf, false, false, false, "at least 0"},
                             {"lr_final", 0, kInf, false, false, false, "at least 0"},
                             {"warmup", 0, kInf, false, false, true, "a whole number of steps, at least 0"},
                             {"decay", 0, kInf, false, false, false, "at least 0"},
                             {"weight_decay", 0, kInf, false, false, false, "at least 0"},
                             {"clip", 0, kInf, true, false, false, "more than 0"},
                             {"beta1", 0, 1, false, true, false, "at least 0 and less than 1"},
                             {"beta2", 0, 1, false, true, false, "at least 0 and less than 1"},
                             {"momentum", 0, 1, false, true, false, "at least 0 and less than 1"},
                             {"adam_eps", 0, kInf, true, false, false, "more than 0"},
                             {"eps", 0, kInf, true, false, false, "more than 0"}};

void check_range(const Setting& setting, double value) {
  for (const Range& r : kRanges) {
    if (r.name != setting.name.text) continue;
    const bool low = r.open_least ? value <= r.least : value < r.least;
    const bool high = r.open_most ? value >= r.most : value > r.most;
    if (low || high || (r.whole && value != std::floor(value))) {
      throw ir::UserError(ir::expr_start(*setting.value), fmt::format("{} must be {}, not {}", setting.name.text, r.text, value));
    }
  }
  if (!std::isfinite(static_cast<float>(value))) {
    throw ir::UserError(ir::expr_start(*setting.value), fmt::format("{}: {} does not fit f32", setting.name.text, value));
  }
}

}  // namespace

void apply_overrides(Description& model, const std::vector<std::pair<std::string, std::string>>& overrides, Report& report) {
  int column = 1;
  for (const auto& [key, text] : overrides) {
    const ir::Loc loc = ir::make_loc("<command line>", 1, column);
    ir::Loc value_loc = loc;
    value_loc.col += static_cast<int>(key.size()) + 1;
    column += static_cast<int>(key.size() + text.size()) + 2;
    Setting* setting = model.find_setting(key);
    if (!setting && key == kDocumentEnd) {  // no model has to name it
      model.config.push_back({{key, loc}, nullptr, {}, true});
      setting = &model.config.back();
    }
    if (!setting) {
      std::vector<std::string> known;
      for (const Setting& s : model.config) known.push_back(s.name.text);
      for (const Setting& s : model.train) known.push_back(s.name.text);
      report.error(loc, fmt::format("the model has no key `{}`{}", key, did_you_mean(key, known)));
      continue;
    }
    report.attempt([&, &value = text] {
      const ir::ExprPtr now = override_value(*setting, value, value_loc);
      if (setting->value) setting->mentioned.push_back(setting->value);
      setting->value = now;
      setting->overridden = true;
    });
  }
}

Config::Config(const Description& model, const std::map<std::string, double>& forced, Report& report) {
  for (const Setting& setting : model.config) {
    pending_[setting.name.text] = {&setting, false, setting.value == nullptr};
    const auto it = forced.find(setting.name.text);
    if (it == forced.end()) continue;
    values_[it->first] = {it->second};
    pending_[it->first].done = true;
  }
  for (const Setting& setting : model.config) {
    try {
      need(setting.name.text, report);
    } catch (const Poisoned&) {  // reported where it went wrong
    }
  }
}

const ir::Constant* Config::need(const std::string& name, Report& report) {
  const auto it = pending_.find(name);
  if (it == pending_.end()) return nullptr;
  Pending& p = it->second;
  if (p.active) {
    std::string chain;
    for (size_t i = std::find(path_.begin(), path_.end(), name) - path_.begin(); i < path_.size(); ++i)
      chain += path_[i] + " -> ";
    throw ir::UserError(ir::expr_start(*p.setting->value), fmt::format("`{}` depends on itself: {}{}", name, chain, name));
  }
  if (!p.done) {
    if (path_.size() >= kLongestChain) {
      throw ir::UserError(ir::expr_start(*p.setting->value),
                          fmt::format("`{}` ends a chain of more than {} keys", name, kLongestChain));
    }
    p.active = true;
    path_.push_back(name);
    const ir::ConstantScope scope{[&](const std::string& n) { return need(n, report); }, [&] { return names(); }};
    bool poisoned = false;
    report.attempt([&] {
      try {
        values_[name] = ir::evaluate(*p.setting->value, scope, true);
      } catch (const Poisoned&) {
        poisoned = true;
      }
    });
    path_.pop_back();
    p.active = false;
    p.done = true;
  }
  const auto value = values_.find(name);
  if (value == values_.end()) throw Poisoned();
  return &value->second;
}

const ir::Constant* Config::find(const std::string& name) const {
  const auto it = values_.find(name);
  if (it != values_.end()) return &it->second;
  if (pending_.contains(name)) throw Poisoned();
  return nullptr;
}

std::vector<std::string> Config::names() const {
  std::vector<std::string> out;
  for (const auto& [name, pending] : pending_) out.push_back(name);
  return out;
}

int64_t size_value(const ir::Expr& expr, const ir::ConstantScope& scope) {
  constexpr double kLargest = 1099511627776.0;  // 2^40
  const ir::Constant value = ir::evaluate(expr, scope);
  const std::string text = ir::constant_text(value);
  if (!value.is_number())
    throw ir::UserError(ir::expr_start(expr),
                        fmt::format("a size must be a whole number, `{}` is {}", ir::expr_text(expr), text));
  const double n = value.number();
  const std::string shown = ir::expr_text(expr) == text ? text : fmt::format("`{}` is {}", ir::expr_text(expr), text);
  if (n != std::floor(n)) throw ir::UserError(ir::expr_start(expr), fmt::format("a size must be a whole number, {}", shown));
  if (n < 1) throw ir::UserError(ir::expr_start(expr), fmt::format("a size must be at least 1, {}", shown));
  if (n > kLargest) throw ir::UserError(ir::expr_start(expr), fmt::format("a size must be at most 2^40, {}", shown));
  return static_cast<int64_t>(n);
}

std::map<std::string, double> train_values(const Description& model, const Config& config, Report& report) {
  std::map<std::string, double> out;
  const ir::ConstantScope scope{[&](const std::string& name) { return config.find(name); }, [&] { return config.names(); }};
  for (const Setting& setting : model.train) {
    if (!setting.value) continue;
    report.attempt([&] {
      try {
        const ir::Constant value = ir::evaluate(*setting.value, scope);
        if (!value.is_number()) {
          throw ir::UserError(ir::expr_start(*setting.value),
                              fmt::format("{} must be a number, not {}", setting.name.text, ir::constant_text(value)));
        }
        check_range(setting, value.number());
        out[setting.name.text] = value.number();
      } catch (const Poisoned&) {
      }
    });
  }
  return out;
}

}  // namespace ingot::models
