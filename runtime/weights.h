// Parameters from a file into a session.
#pragma once
#include <string>

#include "runtime/safetensors.h"
#include "runtime/session.h"

namespace ingot::runtime {

struct LoadReport {
  int loaded = 0, missing = 0, mismatched = 0, extra = 0;
};

/// Writes every parameter of the session from the tensor of its name and runs `prepare`. When the file's tensors all carry one of
/// the prefixes `init.` or `param.` for a parameter, that prefix is taken off (golden files hold several groups).
/// A file that does not fit is refused before anything is written, with one line per tensor that is missing, has another shape,
/// or belongs to no parameter (names matching Plan::checkpoint_ignore may be there). With `partial`, what fits is loaded.
LoadReport load_weights(Session& session, const Safetensors& file, bool partial = false);

}  // namespace ingot::runtime
