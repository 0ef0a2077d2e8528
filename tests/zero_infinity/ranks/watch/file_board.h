// A board for processes: a file for each key in one directory. Nobody holds a lock that a killed or stopped process
// could keep.
#pragma once

#include "zero_infinity/ranks/board.h"

#include <filesystem>

namespace penstock::testing {

class FileBoard final : public zero::Board {
   public:
    explicit FileBoard(std::filesystem::path directory) : directory_(std::move(directory)) {}

    void put(const std::string& key, const std::string& value) override;
    std::string put_first(const std::string& key, const std::string& value) override;
    std::optional<std::string> get(const std::string& key) override;

   private:
    std::filesystem::path place_of(std::string key) const;
    std::filesystem::path written(const std::string& value) const;
    std::filesystem::path directory_;
};

}  // namespace penstock::testing
