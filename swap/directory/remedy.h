// What to do about a store that is not what was written: the ends of error messages.
#pragma once

#include <memory>
#include <string>

namespace penstock::store {

// The library's own words, which name no program. A program that has tools says so in a class of its own. Each is one
// or more sentences without the last full stop; `directory` is the store's first. Nobody is told to remove it without
// saving what may lie in it.
class Remedies {
   public:
    virtual ~Remedies() = default;
    // The store is open, but some of its bytes are wrong or cannot be read.
    virtual std::string of_damage(const std::string& directory) const;
    // The same of a snapshot.
    virtual std::string of_damaged_snapshot(const std::string& directory) const;
    // It cannot be opened at all.
    virtual std::string of_loss(const std::string& directory) const;
    // Nothing is committed in it.
    virtual std::string of_nothing(const std::string& directory) const;
    // A manifest file, the data's only description but for the other one, is missing or cannot be read.
    virtual std::string of_manifest(const std::string& directory) const;
    // The file `lock` is lost, damaged or another store's, and manifests are there, which know the store, too.
    virtual std::string of_lock(const std::string& directory) const;
    // The file `data` of one of its directories is missing.
    virtual std::string of_data(const std::string& directory) const;
    // All of a further directory is.
    virtual std::string of_further_directory(const std::string& directory) const;
};

// Shared: those who refuse later keep them.
using SharedRemedies = std::shared_ptr<const Remedies>;
const SharedRemedies& library_remedies();

}  // namespace penstock::store
