#include "runtime/random_input.h"

#include <cmath>

#include "runtime/random.h"

namespace ingot::runtime {

HostTensor random_input(const ir::Plan& plan, const ir::Port& port, uint64_t seed) {
  const ir::Type& type = plan.buffers[port.buffer].type;
  const Random random(random_key(seed, "input " + port.name, 0));
  std::vector<double> values(static_cast<size_t>(type.elements()));
  if (ir::is_float(type.dtype)) {
    random.normals(0, type.elements(), values.data());
    return HostTensor::from_doubles(type, values);
  }
  int64_t lo = 0, hi = 1;
  for (const ir::InputRange& range : plan.ranges) {
    if (range.input == port.name) lo = range.lo, hi = range.hi;
  }
  random.uniforms(0, type.elements(), values.data());
  for (double& v : values) v = static_cast<double>(lo) + std::floor(v * static_cast<double>(hi - lo + 1));
  return HostTensor::from_doubles(type, values);
}

}  // namespace ingot::runtime
