#include "tests/swap/power/power_device.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <span>

namespace penstock::testing {
namespace {

constexpr std::size_t sector_bytes = 512;

class PowerBackend final : public aio::Backend {
   public:
    explicit PowerBackend(PowerDevice& device) : device_(device) {}

    bool submit(aio::Attempt& attempt) override {
        if (queue_.size() == depth()) return false;
        queue_.push_back(&attempt);
        return true;
    }
    aio::Attempt* reap(std::chrono::nanoseconds /*timeout*/) override { return device_.carry_out(queue_); }
    void wake() noexcept override {}
    aio::Attempt* abandon() noexcept override {
        aio::Attempt* list = nullptr;
        for (aio::Attempt* attempt : std::exchange(queue_, {})) {
            attempt->result = -ECANCELED;
            attempt->next = std::exchange(list, attempt);
        }
        return list;
    }
    std::chrono::steady_clock::time_point now() const noexcept override { return std::chrono::steady_clock::now(); }
    std::size_t depth() const noexcept override { return 16; }
    const char* name() const noexcept override { return "power"; }

   private:
    PowerDevice& device_;
    std::vector<aio::Attempt*> queue_;
};

std::vector<std::byte> contents(const std::string& path) {
    std::vector<std::byte> bytes(std::filesystem::file_size(path));
    std::ifstream file(path, std::ios::binary);
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    PENSTOCK_CHECK(file.good() || bytes.empty(), "{} cannot be read", path);
    return bytes;
}

std::int32_t answer(ssize_t moved) {
    return moved < 0 ? -errno : static_cast<std::int32_t>(moved);
}

}  // namespace

std::unique_ptr<aio::Backend> PowerDevice::backend() {
    return std::make_unique<PowerBackend>(*this);
}

PowerDevice::Image& PowerDevice::image_of(int fd) {
    struct stat status {};
    PENSTOCK_CHECK(::fstat(fd, &status) == 0, "fstat");
    const auto [found, inserted] = images_.try_emplace(status.st_ino);
    if (inserted) {
        found->second.path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string();
        found->second.durable = contents(found->second.path);
    }
    return found->second;
}

aio::Attempt* PowerDevice::carry_out(std::vector<aio::Attempt*>& in_flight) {
    if (in_flight.empty()) return nullptr;
    std::size_t count = in_flight.size();
    if (order_ == InFlight::reordered) {
        std::shuffle(in_flight.begin(), in_flight.end(), random_);
        if (random_() % 2 == 0) count = 1 + random_() % count;
    }
    aio::Attempt* finished = nullptr;
    const bool lived = !dead();
    for (std::size_t i = 0; i < count; ++i) {
        const bool dies_here = lived && dead();
        aio::Attempt& attempt = *in_flight[i];
        if (dies_here && order_ == InFlight::reordered && attempt.kind == aio::IoKind::write)
            tear(attempt, image_of(attempt.fd));
        attempt.result = carry_out_one(attempt);
        attempt.next = std::exchange(finished, &attempt);
        if (lived && dead()) count = in_flight.size();  // what it was in the middle of ends as a whole
    }
    in_flight.erase(in_flight.begin(), in_flight.begin() + static_cast<std::ptrdiff_t>(count));
    return finished;
}

std::int32_t PowerDevice::carry_out_one(aio::Attempt& attempt) {
    Image& image = image_of(attempt.fd);
    if (hook) {
        if (const auto result = hook(attempt, image.path)) return *result;
    }
    if (dead()) return -EIO;
    if (attempt.kind == aio::IoKind::read)
        return answer(::pread(attempt.fd, attempt.data, attempt.bytes, static_cast<off_t>(attempt.offset_bytes)));
    ++changes_;
    const bool dies = changes_left_ && --*changes_left_ == 0;
    if (dies && attempt.kind == aio::IoKind::write) tear(attempt, image);
    if (dies) return -EIO;
    if (attempt.kind == aio::IoKind::write) return write(attempt, image);
    if (flushes_do_nothing) return 0;
    for (const Write& write : image.unflushed) {
        std::copy(write.bytes.begin(), write.bytes.end(),
                  image.durable.begin() + static_cast<std::ptrdiff_t>(write.offset_bytes));
    }
    image.unflushed.clear();
    return 0;
}

// Some sectors are on disk for good, the others never.
void PowerDevice::tear(const aio::Attempt& attempt, Image& image) {
    const std::span<const std::byte> bytes(attempt.data, attempt.bytes);
    image.durable.resize(std::max<std::size_t>(image.durable.size(), attempt.offset_bytes + bytes.size()));
    for (std::size_t at = 0; at < bytes.size(); at += sector_bytes) {
        if (random_() % 2 == 0) continue;
        const auto sector = bytes.subspan(at, std::min(sector_bytes, bytes.size() - at));
        std::copy(sector.begin(), sector.end(),
                  image.durable.begin() + static_cast<std::ptrdiff_t>(attempt.offset_bytes + at));
    }
}

std::int32_t PowerDevice::write(aio::Attempt& attempt, Image& image) {
    const std::span<const std::byte> bytes(attempt.data, attempt.bytes);
    image.durable.resize(std::max<std::size_t>(image.durable.size(), attempt.offset_bytes + bytes.size()));
    const bool synchronous = !synchronous_writes_lie && (::fcntl(attempt.fd, F_GETFL) & O_DSYNC) != 0;
    if (synchronous) {
        std::copy(bytes.begin(), bytes.end(),
                  image.durable.begin() + static_cast<std::ptrdiff_t>(attempt.offset_bytes));
    } else {
        image.unflushed.push_back({attempt.offset_bytes, {bytes.begin(), bytes.end()}});
    }
    return answer(::pwrite(attempt.fd, bytes.data(), bytes.size(), static_cast<off_t>(attempt.offset_bytes)));
}

void PowerDevice::cut(Loss loss) {
    for (auto& [inode, image] : images_) {
        lose(image, loss);
        std::ofstream file(image.path, std::ios::binary | std::ios::in | std::ios::out);
        file.write(reinterpret_cast<const char*>(image.durable.data()),
                   static_cast<std::streamsize>(image.durable.size()));
        PENSTOCK_CHECK(file.good(), "{} cannot be written", image.path);
    }
    changes_left_.reset();
}

void PowerDevice::lose(Image& image, Loss loss) {
    for (const Write& write : std::exchange(image.unflushed, {})) {
        for (std::size_t at = 0; at < write.bytes.size(); at += sector_bytes) {
            if (loss == Loss::everything || (loss == Loss::random_sectors && random_() % 2 == 0)) continue;
            const auto begin = write.bytes.begin() + static_cast<std::ptrdiff_t>(at);
            const auto bytes = static_cast<std::ptrdiff_t>(std::min(sector_bytes, write.bytes.size() - at));
            std::copy(begin, begin + bytes,
                      image.durable.begin() + static_cast<std::ptrdiff_t>(write.offset_bytes + at));
        }
    }
}

}  // namespace penstock::testing
