// The CPU target on every op's own examples.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/codegen/emulated_machine.h"
#include "tests/codegen/kernel_bench.h"

namespace ingot {
namespace {

class Ops : public ingot::testing::OnEachMachine {};
INSTANTIATE_TEST_SUITE_P(On, Ops, ingot::testing::kMachines, ingot::testing::machine_name);

TEST_P(Ops, EveryExampleOfEveryOpMatchesTheInterpreter) {
  testing::KernelBench bench(machine());
  for (const ir::OpDef* def : ir::op_table().all()) {
    if (!testing::lowered_by_target(*def) || std::holds_alternative<ir::KernelLowering>(def->lowering)) continue;
    for (const ir::Example& example : def->examples) bench.add(example.text, example.lo, example.hi);
  }
  bench.run();
  RecordProperty("kernels", bench.kernels());
}

}  // namespace
}  // namespace ingot
