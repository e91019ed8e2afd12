// A card that can be lost: what the fake driver and the fake cuBLASLt share.
//
// INGOT_FAKE_FAIL_AT=n: the n-th call alone fails, memory is out. INGOT_FAKE_LOSE_AT=n: the n-th call of either library is the
// one at which the context is lost. INGOT_FAKE_LOSE_WITH: the driver's error (700, an illegal address). INGOT_FAKE_COUNT: a file
// for two numbers, calls and handles not given back, of a process that ended by exit(). From then on every call fails. Once the
// driver has said so, giving anything back aborts the process: the fake is harder than a driver has to be.
#pragma once

namespace ingot::tests {

inline constexpr int kIllegalAddress = 700;

/// Counts a call of the driver and gives its result: 0, or the loss.
int driver_call();
/// Counts a call of cuBLASLt, which says no more than "execution failed" (13) of a loss. The driver is left to say what it was.
int blas_call();
/// Both for what gives something back.
int driver_return(const char* name);
int blas_return(const char* name);
/// A handle was given out that must be given back.
void give_out();
/// Is the stream being captured? Then a product fills its workspace first, as some of the library's do.
bool capturing();
void captured_fill(unsigned long long workspace);

}  // namespace ingot::tests
