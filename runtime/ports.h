// A plan's names to its buffers, with the message a person gets for a wrong one, and what a value from outside must be.
#pragma once
#include <string>

#include "ir/plan/plan.h"
#include "runtime/session.h"

namespace ingot::runtime {

class Ports {
 public:
  /// Keeps a reference: the plan must outlive it.
  explicit Ports(const ir::Plan& plan) : plan_(plan) {}

  // UserError naming the nearest known name when there is none of that name.
  const ir::Program& program(const std::string& name) const;
  const ir::Buffer& input(const std::string& program, const std::string& name) const;
  const ir::Buffer& output(const std::string& program, const std::string& name) const;
  const ir::Buffer& variable(const std::string& name) const;

  /// UserError for another shape than the buffer's, or an integer outside the plan's range for that input (says where and what).
  void check_input(const std::string& program, const std::string& name, const HostTensor& value) const;
  void check_variable(const std::string& name, const HostTensor& value) const;

 private:
  void check_range(const std::string& what, const std::string& name, ir::DType dtype, const HostTensor& value) const;

  const ir::Plan& plan_;
};

/// The tensor's elements converted to `dtype`, written to `to`.
void convert_elements(const HostTensor& from, ir::DType dtype, std::byte* to);

}  // namespace ingot::runtime
