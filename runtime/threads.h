// How many threads a session uses.
#pragma once

namespace ingot::runtime {

/// `wanted`, or for 0 as many as there are cores this process may run on. UserError when negative or absurd.
int thread_count(int wanted);

}  // namespace ingot::runtime
