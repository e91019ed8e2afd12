// Config keys and train scalars: overrides, evaluation over one another, ranges.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/description.h"
#include "models/report.h"

namespace ingot::models {

/// Thrown instead of a value that a reported mistake made unknown: what depends on it is not reported again.
struct Poisoned {};

/// Replaces values by key=value texts, located as "<command line>:1:col" of the line they make when joined by spaces.
void apply_overrides(Description& model, const std::vector<std::pair<std::string, std::string>>& overrides, Report& report);

/// Every config key's value. A key may use any other; cycles are mistakes.
class Config {
 public:
  /// `forced` beats what the file and the command line say (decode: batch and time).
  Config(const Description& model, const std::map<std::string, double>& forced, Report& report);

  /// nullptr when there is no such key; throws Poisoned when its value is unknown.
  const ir::Constant* find(const std::string& name) const;
  const std::map<std::string, ir::Constant>& values() const { return values_; }
  void set(const std::string& name, double value) { values_[name] = {value}; }
  std::vector<std::string> names() const;

 private:
  struct Pending {
    const Setting* setting = nullptr;
    bool active = false, done = false;
  };
  const ir::Constant* need(const std::string& name, Report& report);

  std::map<std::string, Pending> pending_;
  std::map<std::string, ir::Constant> values_;
  std::vector<std::string> path_;
};

/// The value of an expression over config keys, as a size of an axis: a whole number from 1 to 2^40. Located UserError.
int64_t size_value(const ir::Expr& expr, const ir::ConstantScope& scope);

/// The train scalars' values, checked against what their names promise (lr >= 0, clip > 0, 0 <= beta < 1, ...).
std::map<std::string, double> train_values(const Description& model, const Config& config, Report& report);

}  // namespace ingot::models
