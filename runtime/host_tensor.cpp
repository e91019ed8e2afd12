#include "ir/base/error.h"
#include "runtime/convert.h"
#include "runtime/session.h"

namespace ingot::runtime {

std::vector<double> HostTensor::to_doubles() const {
  ir::check(static_cast<int64_t>(bytes.size()) == type.bytes(), "HostTensor: bytes do not match the type");
  std::vector<double> values(static_cast<size_t>(type.elements()));
  const auto size = static_cast<size_t>(ir::dtype_bytes(type.dtype));
  for (size_t i = 0; i < values.size(); ++i) values[i] = load_double(type.dtype, bytes.data() + i * size);
  return values;
}

HostTensor HostTensor::from_doubles(ir::Type type, const std::vector<double>& values) {
  ir::check(static_cast<int64_t>(values.size()) == type.elements(), "HostTensor: as many values as the shape holds");
  HostTensor tensor(std::move(type));
  const auto size = static_cast<size_t>(ir::dtype_bytes(tensor.type.dtype));
  for (size_t i = 0; i < values.size(); ++i) store_double(tensor.type.dtype, values[i], tensor.bytes.data() + i * size);
  return tensor;
}

}  // namespace ingot::runtime
