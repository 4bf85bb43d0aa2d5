// Slabs for blocks inside library calls: what is served, what is not, and where blocks go back to.
#include "runtime/kernels/library_blocks.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

namespace hyper::runtime {
namespace {

class LibraryBlocks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LibraryBlocksAreServed()) GTEST_SKIP() << "the sanitizer keeps its own heap";
  }
};

// The compiler may leave out a pair of new and delete that nobody looks at.
void* New(size_t bytes) {
  static void* volatile kept;
  kept = ::operator new(bytes);
  return kept;
}

TEST_F(LibraryBlocks, OnlyInsideACall) {
  const int64_t served = LibraryBlocksServed();
  ::operator delete(New(32));
  EXPECT_EQ(LibraryBlocksServed(), served);
  void* block = nullptr;
  {
    const LibraryCall call;
    block = New(32);
    EXPECT_EQ(LibraryBlocksServed(), served + 1);
  }
  ::operator delete(block);  // may outlive the call
  std::thread([&] { ::operator delete(New(32)); }).join();
  EXPECT_EQ(LibraryBlocksServed(), served + 1);
}

TEST_F(LibraryBlocks, AFreedBlockIsServedAgain) {
  const LibraryCall call;
  for (const size_t bytes : {1, 64, 65, 4096, 70000, 16 << 20}) {
    void* first = New(bytes);
    std::memset(first, 0x5a, bytes);
    ::operator delete(first);
    void* second = New(bytes);
    EXPECT_EQ(first, second) << bytes;
    ::operator delete(second);
  }
}

TEST_F(LibraryBlocks, BlocksAreApartAndAligned) {
  const LibraryCall call;
  std::vector<std::pair<char*, size_t>> blocks;
  for (int round = 0; round < 100; ++round) {
    for (const size_t alignment : {8, 64, 256, 4096}) {
      const size_t bytes = static_cast<size_t>(round * 37 + 1);
      void* memory = nullptr;
      ASSERT_EQ(posix_memalign(&memory, alignment, bytes), 0);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % alignment, 0U);
      std::memset(memory, static_cast<int>(blocks.size() % 251), bytes);
      blocks.emplace_back(static_cast<char*>(memory), bytes);
    }
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t k = 0; k < blocks[i].second; ++k) {
      ASSERT_EQ(static_cast<unsigned char>(blocks[i].first[k]), i % 251) << "block " << i;
    }
    std::free(blocks[i].first);
  }
}

TEST_F(LibraryBlocks, TooLargeOrTooAlignedComesFromTheHeap) {
  const int64_t from_heap = LibraryBlocksFromHeap();
  const LibraryCall call;
  ::operator delete(New(static_cast<size_t>(kLargestLibraryBlock) + 1));
  EXPECT_EQ(LibraryBlocksFromHeap(), from_heap + 1);
  void* memory = nullptr;
  ASSERT_EQ(posix_memalign(&memory, 1 << 16, 64), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % (1 << 16), 0U);
  std::free(memory);
  EXPECT_EQ(LibraryBlocksFromHeap(), from_heap + 2);
  EXPECT_EQ(posix_memalign(&memory, 24, 64), EINVAL);
}

// A slab that is full is no failure; blocks that come back are served again.
TEST_F(LibraryBlocks, AFullSlabFallsBackToTheHeap) {
  std::thread([] {
    const LibraryCall call;
    const int64_t from_heap = LibraryBlocksFromHeap();
    constexpr size_t kBlock = 4 << 20;
    const auto fit = static_cast<size_t>(kLibrarySlabBytes) / kBlock;
    std::vector<void*> blocks;
    blocks.reserve(2 * fit);
    while (LibraryBlocksFromHeap() == from_heap && blocks.size() < 2 * fit) {
      blocks.push_back(New(kBlock));
    }
    EXPECT_EQ(LibraryBlocksFromHeap(), from_heap + 1);
    EXPECT_LE(blocks.size(), fit + 1);
    EXPECT_GE(blocks.size(), 2U);
    for (void* block : blocks) ::operator delete(block);
    ::operator delete(New(kBlock));
    EXPECT_EQ(LibraryBlocksFromHeap(), from_heap + 1);
  }).join();
}

// Blocks made by one thread and freed by another, while both go on; many threads one after another.
TEST_F(LibraryBlocks, BlocksTravelBetweenThreads) {
  constexpr int kBlocks = 20000;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::atomic<char*>> handed(kBlocks);
    std::thread maker([&] {
      const LibraryCall call;
      for (int i = 0; i < kBlocks; ++i) {
        char* block = static_cast<char*>(::operator new(48));
        std::memset(block, i % 127, 48);
        handed[static_cast<size_t>(i)].store(block, std::memory_order_release);
      }
    });
    std::thread taker([&] {
      const LibraryCall call;
      for (int i = 0; i < kBlocks; ++i) {
        char* block = nullptr;
        while (block == nullptr) {
          block = handed[static_cast<size_t>(i)].load(std::memory_order_acquire);
          if (block == nullptr) std::this_thread::yield();
        }
        for (int k = 0; k < 48; ++k) {
          if (block[k] != i % 127) {
            ADD_FAILURE() << "block " << i << " was overwritten";
            break;
          }
        }
        ::operator delete(block);
        ::operator delete(New(48));
      }
    });
    maker.join();
    taker.join();
  }
}

// More threads in all than there are slabs: a thread's slab goes on to the next.
TEST_F(LibraryBlocks, SlabsOfThreadsThatEndedAreUsedAgain) {
  const int64_t from_heap = LibraryBlocksFromHeap();
  for (int i = 0; i < 2 * kLibrarySlabs; ++i) {
    std::thread([] {
      const LibraryCall call;
      ::operator delete(New(100));
    }).join();
  }
  EXPECT_EQ(LibraryBlocksFromHeap(), from_heap);
}

// What takes any block of the heap takes those of a slab too.
TEST_F(LibraryBlocks, ReallocMovesABlockOut) {
  for (const size_t bytes : {40, 64, 1000, 100000}) {
    void* block = nullptr;
    {
      const LibraryCall call;
      ASSERT_EQ(posix_memalign(&block, 64, 1000), 0);
    }
    std::memset(block, 0x5a, 1000);
    EXPECT_EQ(malloc_usable_size(block), 1024U);
    char* volatile moved = static_cast<char*>(std::realloc(block, bytes));
    ASSERT_NE(moved, nullptr);
    EXPECT_FALSE(IsLibraryBlock(moved));
    EXPECT_GE(malloc_usable_size(moved), bytes);
    for (size_t i = 0; i < std::min<size_t>(bytes, 1000); ++i) ASSERT_EQ(moved[i], 0x5a) << i;
    // The block is free again, and the next of its size.
    const LibraryCall call;
    void* next = New(1000);
    EXPECT_EQ(next, block);
    ::operator delete(next);
    std::free(moved);
  }
  void* volatile plain = std::realloc(nullptr, 100);
  EXPECT_GE(malloc_usable_size(plain), 100U);
  std::free(plain);
  EXPECT_EQ(malloc_usable_size(nullptr), 0U);
}

TEST_F(LibraryBlocks, OnlyNewBlocksAreCut) {
  std::thread([] {
    const LibraryCall call;
    std::vector<void*> kept;
    kept.reserve(100);
    ::operator delete(New(3000));  // whatever the slab's former owner left
    void* first = New(3000);
    const int64_t cut = LibraryBytesCut();
    ::operator delete(first);
    for (int i = 0; i < 100; ++i) ::operator delete(New(3000));
    EXPECT_EQ(LibraryBytesCut(), cut);
    for (int i = 0; i < 100; ++i) kept.push_back(New(3000));
    EXPECT_GT(LibraryBytesCut(), cut);
    EXPECT_EQ((LibraryBytesCut() - cut) % 4096, 0);
    for (void* block : kept) ::operator delete(block);
  }).join();
}

// Little address space (ulimit -v): slabs are small pieces of it, and where even one of them is
// refused, blocks come from the heap and the note says why.
TEST_F(LibraryBlocks, ARefusedSlabIsNoFailure) {
  // In a process of its own, whose slabs nobody has taken yet.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        rlimit limit{};
        getrlimit(RLIMIT_AS, &limit);
        limit.rlim_cur = 1 << 20;  // less than what is in use: nothing more is mapped
        setrlimit(RLIMIT_AS, &limit);
        bool refused = false;
        {
          const LibraryCall call;
          void* block = New(100);
          refused = !IsLibraryBlock(block);
          ::operator delete(block);
        }
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_AS, &limit);
        const std::string note = LibraryHeapNote();
        std::fprintf(stderr, "%s\n", note.c_str());
        std::_Exit(refused ? 0 : 1);
      },
      ::testing::ExitedWithCode(0),
      "took 1 blocks from the heap \\(the system refused the address space of a slab of 64");
}

}  // namespace
}  // namespace hyper::runtime
