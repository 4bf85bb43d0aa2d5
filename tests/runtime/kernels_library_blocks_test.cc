// Slabs for blocks inside library calls: what is served, what is not, and where blocks go back to.
#include "runtime/kernels/library_blocks.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace hyper::runtime
