// SIGINT and SIGTERM: at once while there is nothing to save, at the next step boundary afterwards.
#pragma once

namespace ingot::runtime {

/// One per process; handlers are put back when it goes.
class Signals {
 public:
  /// Until defer(): a signal prints one sentence and exits with 128 + its number.
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// From now on signals are only noted. A second one changes nothing: what has begun (a save) is finished.
  void defer();
  /// The first signal noted, 0 when none.
  int caught() const;
};

}  // namespace ingot::runtime
