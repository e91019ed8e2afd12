// Collects the mistakes of a model file: one per place, at most 20, then loading stops.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "ir/base/error.h"

namespace ingot::models {

class Report {
 public:
  /// Thrown when the limit is reached; load_model turns it into the UserError.
  struct Full {};

  /// Keeps the first mistake at each place: a block's lines are seen once per layer.
  void error(const ir::Loc& loc, std::string message, std::vector<ir::Note> notes = {});
  void error(const ir::UserError& error);
  /// Runs `step`; a UserError it throws is kept here. False if it threw.
  template <class F>
  bool attempt(F&& step) {
    std::vector<ir::Diagnostic> caught;
    try {
      step();
      return true;
    } catch (const ir::UserError& e) {
      caught = e.diagnostics();
    }
    for (ir::Diagnostic& d : caught) error(d.loc, std::move(d.message), std::move(d.notes));
    return false;
  }

  bool empty() const { return list_.empty(); }
  /// Throws everything collected as one UserError, in the order of the files' lines.
  void throw_if_any();

 private:
  std::vector<ir::Diagnostic> list_;
  std::set<std::string> places_;
};

/// "; did you mean `x`?" or "".
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace ingot::models
