// Runs a fuzz target without libFuzzer: every file of the corpus, then mutations of them by a fixed
// seed, so that a failure can be repeated.
//
//   fuzz_TARGET [--mutations N] [--seed S] [--save FILE] PATH...
//
// PATH is a file or a folder of them (all levels). The input at work lies in FILE (default:
// fuzz_TARGET.input beside the program's working folder), where a crash leaves it. An input may
// take kSeconds and ask for kBytes at once.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/fuzz/target.h"

namespace {

constexpr unsigned kSeconds = 20;
constexpr size_t kBytes = size_t{512} << 20;
// Longer files are replayed, but not mutated: most changes would hit plain numbers.
constexpr size_t kLongestMutated = 256 << 10;

void Say(const char* text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

extern "C" void OnAlarm(int) {
  Say("fuzz driver: the input takes too long\n");
  std::abort();
}

#if !defined(__SANITIZE_ADDRESS__)
constexpr bool kCountsMemory = true;
#else
constexpr bool kCountsMemory = false;
#endif

using Input = std::string;

class Mutator {
 public:
  Mutator(const std::vector<Input>& corpus, uint32_t seed) : corpus_(corpus), random_(seed) {}

  Input Next() {
    Input input = corpus_[Below(corpus_.size())];
    const size_t changes = 1 + Below(6);
    for (size_t k = 0; k < changes; ++k) Change(&input);
    return input;
  }

 private:
  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }

  void Change(Input* input) {
    Input& text = *input;
    if (text.empty()) text.push_back(static_cast<char>(random_()));
    const size_t at = Below(text.size());
    switch (Below(9)) {
      case 0: text[at] = static_cast<char>(text[at] ^ (1 << Below(8))); break;
      case 1: text[at] = static_cast<char>(random_()); break;
      case 2: text.resize(at); break;
      case 3: text.erase(at, 1 + Below(32)); break;
      case 4: text.insert(at, text.substr(Below(text.size()), 1 + Below(64))); break;
      case 5: {  // a length, an extent or an offset
        static const uint64_t kValues[] = {0,          1,          0x7F,       0x80,
                                           0xFFFF,     0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
                                           UINT64_MAX, INT64_MAX,  1ULL << 40, 1ULL << 62};
        const uint64_t value = kValues[Below(std::size(kValues))];
        const size_t bytes = std::min(size_t{1} << Below(4), text.size() - at);
        std::memcpy(text.data() + at, &value, bytes);
        break;
      }
      case 6: {  // the same in decimal digits
        static const char* const kDigits[] = {"-1",  "0",           "9223372036854775807", "1e308",
                                              "nan", "99999999999", "2147483648",          "[]",
                                              "{",   "\""};
        size_t end = at;
        while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
        text.replace(at, end - at, kDigits[Below(std::size(kDigits))]);
        break;
      }
      default: {  // a piece of another input
        const Input& other = corpus_[Below(corpus_.size())];
        const size_t from = Below(other.size());
        const size_t bytes = 1 + Below(std::min<size_t>(other.size() - from, 256));
        if (Below(2) == 0) {
          text.insert(at, other.substr(from, bytes));
        } else {
          text.replace(at, bytes, other.substr(from, bytes));
        }
      }
    }
    if (text.size() > 2 * kLongestMutated) text.resize(2 * kLongestMutated);
  }

  const std::vector<Input>& corpus_;
  std::mt19937 random_;
};

class Runner {
 public:
  explicit Runner(std::string save) : save_(std::move(save)) {}

  void Run(const Input& input) {
    std::ofstream(save_, std::ios::binary) << input;
    alarm(kSeconds);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    alarm(0);
    ++count_;
  }
  int64_t count() const { return count_; }

 private:
  std::string save_;
  int64_t count_ = 0;
};

std::vector<Input> ReadCorpus(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    if (!fs::exists(path)) {
      std::fprintf(stderr, "fuzz driver: '%s' does not exist\n", path.c_str());
      return {};
    }
    if (!fs::is_directory(path)) {
      files.emplace_back(path);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Input> corpus;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__)
void* operator new(std::size_t bytes) {
  if (bytes > kBytes) {
    Say("fuzz driver: the input asks for too much memory at once\n");
    std::abort();
  }
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

int main(int argc, char** argv) {
  int64_t mutations = 0;
  uint32_t seed = 1;
  std::string save = std::filesystem::path(argv[0]).filename().string() + ".input";
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool has_value = i + 1 < argc;
    if (argument == "--mutations" && has_value) {
      mutations = std::atoll(argv[++i]);
    } else if (argument == "--seed" && has_value) {
      seed = static_cast<uint32_t>(std::atoi(argv[++i]));
    } else if (argument == "--save" && has_value) {
      save = argv[++i];
    } else {
      paths.push_back(argument);
    }
  }
  std::signal(SIGALRM, OnAlarm);
  std::vector<Input> corpus = ReadCorpus(paths);
  if (corpus.empty()) {
    std::fprintf(stderr, "fuzz driver: no input in the given paths\n");
    return 2;
  }
  Runner runner(save);
  for (const Input& input : corpus) runner.Run(input);
  const int64_t replayed = runner.count();
  std::erase_if(corpus, [](const Input& input) { return input.size() > kLongestMutated; });
  Mutator mutator(corpus, seed);
  for (int64_t k = 0; k < mutations && !corpus.empty(); ++k) runner.Run(mutator.Next());
  std::remove(save.c_str());
  std::printf("figure inputs_replayed %lld\nfigure inputs_mutated %lld\n",
              static_cast<long long>(replayed), static_cast<long long>(runner.count() - replayed));
  if (!kCountsMemory) std::printf("note large allocations are left to the sanitizer\n");
  return 0;
}
