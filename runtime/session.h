// Plan in, numbers out: a loaded plan on a device. The one door tools/ and the training loop use.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/plan/plan.h"
#include "runtime/trace.h"

namespace ingot::runtime {

struct SessionOptions {
  int threads = 0;  ///< 0 = all cores the process may use; results never depend on it
  /// Fill temps with NaN (0xff bytes) before each program and each dead range at its end of life; a GPU then runs calls one by
  /// one, whatever their lanes.
  bool poison = false;
  bool trace = false;      ///< record a time per call (Session::trace)
  bool graph = true;       ///< GPU: replay each program as one captured graph; off: its calls one by one, same results
  bool wait = false;       ///< GPU: wait for each call, one after the other, so that one that fails is named; same results
  bool check_nan = false;  ///< after each call look for non-finite floats in what it wrote; throws UserError naming the call
};

/// Dense row-major bytes with a type; what goes in and out of a session.
struct HostTensor {
  ir::Type type;
  std::vector<std::byte> bytes;

  HostTensor() = default;
  explicit HostTensor(ir::Type t) : type(std::move(t)), bytes(static_cast<size_t>(type.bytes())) {}
  /// Values as double / from double, converted to and from the dtype (round to nearest even).
  std::vector<double> to_doubles() const;
  static HostTensor from_doubles(ir::Type type, const std::vector<double>& values);
};

class Session {
 public:
  /// Verifies, allocates the arenas, loads the kernels. MachineError when this machine cannot run the plan (wrong CPU
  /// features, not enough memory: says how much it needs). Contents are undefined until run("init") or write_variable().
  static std::unique_ptr<Session> open(ir::Plan plan, SessionOptions options = {});
  virtual ~Session() = default;

  virtual const ir::Plan& plan() const = 0;
  /// Runs init (parameters from the seed keyed by name), then prepare.
  virtual void initialise(uint64_t seed) = 0;
  /// One replay of a program. UserError when there is none of that name.
  virtual void run(const std::string& program) = 0;
  /// Converts to the buffer's dtype; UserError on another shape, or on an integer outside the plan's range for that input
  /// (names the position and the value).
  virtual void set_input(const std::string& program, const std::string& name, const HostTensor& value) = 0;
  virtual HostTensor output(const std::string& program, const std::string& name) const = 0;
  /// Does run() return before the program has finished? Then reading what the run before it left (`previous_output`, a loss, a
  /// norm: outputs of at most 64 KiB) lets the host prepare the next step while this one runs.
  virtual bool runs_ahead() const { return false; }
  virtual HostTensor previous_output(const std::string& program, const std::string& name) const { return output(program, name); }
  /// Of a device that runs ahead, once the run before the last has left its outputs: the seconds by the device's clock from the
  /// end of the run before that one to its beginning. Inputs and outputs were copied in them, or nothing was done. Negative
  /// before there have been three runs.
  virtual double previous_gap() const { return -1; }
  virtual HostTensor read_variable(const std::string& name) const = 0;
  virtual void write_variable(const std::string& name, const HostTensor& value) = 0;  ///< call run("prepare") after the last one
  /// From now on record a time per call, or no longer (SessionOptions::trace says how a session begins).
  virtual void record(bool on) = 0;
  /// A time per call of the runs so far; empty unless they were recorded.
  virtual const Trace& trace() const = 0;
};

}  // namespace ingot::runtime
