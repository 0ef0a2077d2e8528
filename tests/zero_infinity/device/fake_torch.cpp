// The library that torch links its CUDA runtime to, by its name alone.
namespace penstock::fake_torch {

void is_loaded() {}

}  // namespace penstock::fake_torch
