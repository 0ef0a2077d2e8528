#include "swap/store/commit.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"

#include <utility>

namespace penstock::store {

Commit::Commit(aio::Io& io, std::span<const aio::File> data, std::span<const aio::File> manifests,
               std::uint64_t place_bytes, CommitListener& listener)
    : io_(io),
      data_(data),
      manifests_(manifests),
      listener_(listener),
      place_bytes_(place_bytes),
      place_(place_bytes, 1, pool::Registration::none),
      parts_(data.size()) {
    for (Part& part : parts_) part.owner = this;
}

void Commit::start(std::uint64_t generation, std::uint64_t bytes) {
    PENSTOCK_CHECK(idle(), "a commit is under way");
    generation_ = generation;
    bytes_ = bytes;
    error_.reset();
    step_ = Step::flushing;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        ++parts_in_flight_;
        io_.start(parts_[i],
                  {.kind = aio::IoKind::flush, .file = &data_[i], .data = nullptr, .offset_bytes = 0, .bytes = 0});
    }
}

// The last part that comes back decides what is next.
void Commit::part_done(const Part& part) noexcept {
    if (part.error() && !error_) error_ = part.error();
    if (--parts_in_flight_ > 0) return;
    advance();
}

void Commit::advance() noexcept {
    if (error_) return finish();
    switch (step_) {
        case Step::flushing:
            step_ = Step::first_copy;
            return write_copy(0);
        case Step::first_copy:
            step_ = Step::second_copy;
            return write_copy(1);
        case Step::second_copy:
        case Step::refusing:
        case Step::rewriting:
            return finish();
        case Step::idle:
            PENSTOCK_CHECK(false, "no commit is under way");
    }
}

// Generations alternate between the two files, so this is where g-2 was, never where g-1 is. The file is O_DSYNC: a
// copy that was written is durable.
void Commit::write_copy(std::uint32_t copy) {
    ++parts_in_flight_;
    io_.start(parts_[0], {.kind = aio::IoKind::write,
                          .file = &manifests_[generation_ % 2],
                          .data = place_.data(),
                          .offset_bytes = copy * place_bytes_,
                          .bytes = bytes_,
                          .urgency = aio::Urgency::demand});
}

void Commit::refuse() {
    PENSTOCK_CHECK(idle(), "a commit is under way");
    error_.reset();
    step_ = Step::refusing;
    ++parts_in_flight_;
    io_.post(parts_[0]);
}

void Commit::rewrite(std::uint64_t generation, std::uint32_t copy, std::uint64_t bytes) {
    PENSTOCK_CHECK(idle(), "a commit is under way");
    generation_ = generation;
    bytes_ = bytes;
    error_.reset();
    step_ = Step::rewriting;
    write_copy(copy);
}

void Commit::finish() noexcept {
    if (std::exchange(step_, Step::idle) == Step::rewriting) {
        listener_.copy_rewritten(error_);
    } else {
        listener_.commit_finished(error_);
    }
}

}  // namespace penstock::store
