// `ingot verify` without its flags: a golden file (float64 results of a whole model from an independent source) against what
// the compiler makes of the model. tests/whole uses the same functions.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/target.h"
#include "ir/graph/op_def.h"
#include "models/loader.h"

namespace ingot::tools {

using Tensors = std::map<std::string, ir::Tensor>;

/// The file's four kinds of tensors, by name without the prefix. Numbers as they are in the file, in double.
struct Golden {
  std::string path;
  Tensors params, inputs, outputs, gradients;
};
/// UserError when the file cannot be read or holds a key of no kind (param. in. out. grad.).
Golden read_golden(const std::string& path);

struct VerifyOptions {
  const codegen::Target* target = nullptr;  ///< nullptr: the reference, the interpreter in double
  std::string precision = "f32";            ///< f32, bf16
  std::optional<double> tolerance;          ///< for every tensor; absent: by target and precision
  int threads = 0;
};

/// One tensor's distance from the golden one: |got - want| / |want| (the norm of got where want is zero).
struct VerifyRow {
  std::string name;  ///< as in the file: out.logits, grad.emb.weight
  ir::Shape shape;
  double error = 0;
  double own = -1;  ///< 16 bits: the error of the double interpreter that rounds where this graph rounds; -1: not judged by it
  double limit = 0;
  bool passed() const { return error <= limit; }  // false for NaN
};

struct VerifyReport {
  std::vector<VerifyRow> rows;
  size_t worst = 0;                    ///< index of the largest error
  double median = 0;                   ///< of the gradients (of everything when there are none)
  double median_limit = 0;             ///< 16 bits; 0: none
  std::vector<std::string> unchecked;  ///< gradients and outputs the file says nothing about
  bool passed() const;
};

/// Loss and gradients of @loss on the golden inputs and parameters, the loss as a mean: program `verify`, its `loss` and
/// `grad.*` divided by `count`. Keys as in the file: out.NAME, grad.NAME. `rounded`: every value of the reference is rounded
/// to what its buffer would hold (in 16 bits: only those narrower than f32).
Tensors run_reference(const models::LoadedModel& model, const Golden& golden, const std::string& precision, bool rounded);
Tensors run_target(const models::LoadedModel& model, const Golden& golden, const VerifyOptions& options);

/// Everything together. UserError, with all mismatches at once, when the file and the model do not fit.
VerifyReport verify(const models::LoadedModel& model, const Golden& golden, const VerifyOptions& options);

double relative_error(const ir::Tensor& got, const ir::Tensor& want);

}  // namespace ingot::tools
