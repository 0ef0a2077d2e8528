// The kernel's reserved huge pages, which fio's mmaphuge takes its buffers from. Penstock itself needs none: it uses
// transparent ones.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::bench {

enum class HugePageReserve : std::uint8_t { as_it_is, raise };

// Sees that `needed` pages are free while it lives: with `raise` it raises vm.nr_hugepages and sets it back at the end.
class HugePages2MiB {
   public:
    HugePages2MiB(std::uint64_t needed, HugePageReserve reserve);
    ~HugePages2MiB();
    HugePages2MiB(const HugePages2MiB&) = delete;
    HugePages2MiB& operator=(const HugePages2MiB&) = delete;

    bool enough() const noexcept { return note_.empty(); }
    const std::string& note() const noexcept { return note_; }  // empty, or one line: why not and what to do

   private:
    std::uint64_t before_ = 0;
    bool raised_ = false;
    std::string note_;
};

}  // namespace penstock::bench
