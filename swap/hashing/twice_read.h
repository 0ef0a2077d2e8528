// The rule of each read: bytes that do not hash right are read once more, for the way from the device may err;
// bytes that are wrong again are damaged.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::store {

// Of one operation, which has one read under way at a time. `place` names what was read, with file and offset.
class TwiceRead {
   public:
    enum class Verdict : std::uint8_t {
        right,        // as most are
        again,        // wrong for once: to be read once more
        right_again,  // right the second time: worth a note
        damaged,      // wrong twice
    };
    void begin() noexcept { again_ = false; }
    Verdict judge(bool right) noexcept;  // of the bytes that came

    static std::string note(const std::string& place);
    static std::string damage(const std::string& place, const std::string& remedy);

   private:
    bool again_ = false;  // the bytes were wrong once
};

}  // namespace penstock::store
