// penstock_fuzz_seeds DIRECTORY: writes the seeds of every target into DIRECTORY/NAME, named by their place. Run it
// after a change of a format, then ./run fuzz, which keeps what finds something new.
#include "tests/fuzz/fuzz_target.h"

#include <filesystem>
#include <fstream>
#include <iostream>

int main(int count, char** arguments) {
    if (count != 2) {
        std::cerr << "usage: penstock_fuzz_seeds DIRECTORY\n";
        return 2;
    }
    for (const penstock::fuzz::FuzzTarget* target : penstock::fuzz::fuzz_targets()) {
        const std::filesystem::path folder = std::filesystem::path(arguments[1]) / target->name;
        std::filesystem::create_directories(folder);
        int number = 0;
        for (const penstock::fuzz::Bytes& seed : target->seeds()) {
            std::ofstream out(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
            out.write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
        }
    }
}
