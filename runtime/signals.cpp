#include "runtime/signals.h"

#include <signal.h>
#include <unistd.h>

#include <string_view>

namespace ingot::runtime {
namespace {

volatile sig_atomic_t g_caught = 0;
volatile sig_atomic_t g_deferred = 0;
struct sigaction g_before_int {
}, g_before_term{};

extern "C" void on_signal(int number) {
  if (g_deferred == 0) {
    constexpr std::string_view text = "stopped by a signal before the first step; nothing to save yet\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
    _exit(128 + number);
  }
  if (g_caught == 0) g_caught = number;
}

}  // namespace

Signals::Signals() {
  g_caught = 0;
  g_deferred = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &g_before_int);
  sigaction(SIGTERM, &action, &g_before_term);
}

Signals::~Signals() {
  sigaction(SIGINT, &g_before_int, nullptr);
  sigaction(SIGTERM, &g_before_term, nullptr);
}

void Signals::defer() { g_deferred = 1; }
int Signals::caught() const { return g_caught; }

}  // namespace ingot::runtime
