// A text that is copied where nothing may throw: errors carry the path of their file.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace penstock::aio {

class SharedText {
   public:
    SharedText() noexcept = default;
    SharedText(std::string text) : text_(std::make_shared<const std::string>(std::move(text))) {}
    SharedText(const char* text) : SharedText(std::string(text)) {}

    const std::string& text() const noexcept {
        static const std::string none;
        return text_ == nullptr ? none : *text_;
    }
    operator const std::string&() const noexcept { return text(); }
    friend bool operator==(const SharedText& one, const std::string& other) noexcept { return one.text() == other; }

   private:
    std::shared_ptr<const std::string> text_;
};

}  // namespace penstock::aio
