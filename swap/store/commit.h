// The order of a commit: every device is flushed, then copy 1 and then copy 2 of the manifest are written durably. And
// before the first one that follows an opening: a copy of what was found. One at a time; knows files, not tiles.
// Allocates in the constructor only.
#pragma once

#include "aio/file.h"
#include "aio/io.h"
#include "aio/words/io_error.h"
#include "pinned_pool/region.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock::store {

class CommitListener {
   public:
    // From Io::poll() or wait().
    virtual void commit_finished(const std::optional<aio::IoError>& error) noexcept = 0;
    virtual void copy_rewritten(const std::optional<aio::IoError>& error) noexcept = 0;

   protected:
    ~CommitListener() = default;
};

class Commit {
   public:
    // `data` and the two `manifests` outlive it.
    Commit(aio::Io& io, std::span<const aio::File> data, std::span<const aio::File> manifests,
           std::uint64_t place_bytes, CommitListener& listener);

    bool idle() const noexcept { return step_ == Step::idle; }
    std::span<std::byte> memory() noexcept {
        return {place_.data(), place_bytes_};
    }  // for the manifest of the next start()

    // Writes the first `bytes` of memory() as the manifest of `generation`. REQUIRES: idle.
    void start(std::uint64_t generation, std::uint64_t bytes);
    // Delivers commit_finished() without committing, for a refusal that must come from poll() too. REQUIRES: idle.
    void refuse();
    // Writes the first `bytes` of memory() as copy 0 or 1 of the manifest of `generation`, then copy_rewritten().
    // REQUIRES: idle; the other copy is whole, so that a cut within the write costs nothing.
    void rewrite(std::uint64_t generation, std::uint32_t copy, std::uint64_t bytes);

   private:
    enum class Step : std::uint8_t {
        idle,
        flushing,     // one flush per device is in flight
        first_copy,   // copy 1 is being written
        second_copy,  // copy 2 is being written
        refusing,     // nothing is written
        rewriting,    // no commit: a copy of an earlier one's is being written
    };
    struct Part final : aio::Transfer {
        Commit* owner = nullptr;
        void done() noexcept override { owner->part_done(*this); }
    };

    void part_done(const Part& part) noexcept;
    void advance() noexcept;
    void write_copy(std::uint32_t copy);
    void finish() noexcept;

    aio::Io& io_;
    std::span<const aio::File> data_;
    std::span<const aio::File> manifests_;
    CommitListener& listener_;
    std::uint64_t place_bytes_;
    pool::Region place_;
    std::vector<Part> parts_;  // as many as devices; the first also writes the manifests

    Step step_ = Step::idle;
    std::uint64_t generation_ = 0;
    std::uint64_t bytes_ = 0;
    std::size_t parts_in_flight_ = 0;
    std::optional<aio::IoError> error_;
};

}  // namespace penstock::store
