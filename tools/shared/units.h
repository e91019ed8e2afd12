// Numbers as a person reads them. Scripts ask for --json and get plain numbers.
#pragma once
#include <cstdint>
#include <string>

namespace ingot::tools {

std::string bytes_text(int64_t bytes);                       ///< "512 B", "1.50 KiB", "12.3 MiB"
std::string count_text(double count);                        ///< "950", "12.3k", "124M", "1.52G"
std::string flops_text(double flops);      ///< "330 kFLOP", "78.8 MFLOP"
std::string seconds_text(double seconds);                    ///< "1.20 ms", "3.45 s", "2 min 05 s"
std::string plural(int64_t count, const std::string& noun);  ///< "1 op", "3 ops"

}  // namespace ingot::tools
