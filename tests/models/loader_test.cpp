// What the language allows: constructs on small models.
#include "models/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "ir/graph/interpret.h"
#include "ir/graph/op_def.h"
#include "ir/graph/verify.h"

namespace ingot::models {
namespace {

TEST(Loader, LaterModelsWaitForTheirOps) {
  for (const std::string name : {"rwkvx.yaml", "mamba3.yaml"}) {
    try {
      load_model(std::string(INGOT_SOURCE_DIR) + "/models/" + name);
    } catch (const ir::UserError& e) {
      for (const ir::Diagnostic& d : e.diagnostics()) printf("%s: %s\n", d.loc.text().c_str(), d.message.c_str());
    }
  }
}

}  // namespace
}  // namespace ingot::models
