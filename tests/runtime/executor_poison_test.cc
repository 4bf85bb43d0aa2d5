// The test mode that paints dead memory, on a hand-made program: what it accepts, what it finds.
#include "runtime/poison.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hyper::runtime {
namespace {

using ::testing::HasSubstr;

void AddOperand(program::Instruction& instruction, int64_t begin, int64_t end,
                program::Access access) {
  program::Operand& operand = *instruction.add_operands();
  operand.set_dtype(program::U8);
  operand.set_access(access);
  operand.add_dims(end - begin);
  operand.add_strides(1);
  operand.set_offset(begin);
  operand.set_begin(begin);
  operand.set_end(end);
}

// Temporaries at [0, 320): "make" writes a = [0, 64) with the workspace [64, 192); "use" reads a
// and writes b = [128, 192), where the workspace lay. Bytes from 192 on are nobody's.
class PoisonTest : public ::testing::Test {
 protected:
  PoisonTest() : arena_(320) {
    program::Region& region = *program_.add_regions();
    region.set_storage(program::TEMPORARY);
    region.set_end(static_cast<int64_t>(arena_.size()));
    program::SubProgram& sub = *program_.add_subprograms();
    program::Instruction& make = *sub.add_instructions();
    make.set_source("make");
    AddOperand(make, 0, 64, program::WRITE);
    AddOperand(make, 64, 192, program::WORKSPACE);
    program::Instruction& use = *sub.add_instructions();
    use.set_source("use");
    AddOperand(use, 0, 64, program::READ);
    AddOperand(use, 128, 192, program::WRITE);
    guard_ = std::make_unique<PoisonGuard>(program_, program_.subprograms(0), arena_.data());
    guard_->Begin();
  }
  void Write(size_t begin, size_t end) { std::memset(arena_.data() + begin, 1, end - begin); }

  program::Program program_;
  std::vector<char> arena_;
  std::unique_ptr<PoisonGuard> guard_;
};

// How far a workspace was really written, its cap, and results are figures of their own.
TEST_F(PoisonTest, WhatIsWrittenInAWorkspaceIsMeasured) {
  Write(0, 60);
  Write(64, 70);  // this launch needs little of it
  ASSERT_TRUE(guard_->After(0).ok());
  const PoisonMarks& marks = guard_->marks();
  EXPECT_EQ(marks.written, 70);
  EXPECT_EQ(marks.written_by_results, 60);
  EXPECT_EQ(marks.planned_touch, 192);
  ASSERT_EQ(marks.workspaces.size(), 1U);
  EXPECT_EQ(marks.workspaces[0].source, "make");
  EXPECT_EQ(marks.workspaces[0].begin, 64);
  EXPECT_EQ(marks.workspaces[0].cap, 128);
  EXPECT_EQ(marks.workspaces[0].written, 6);
  Write(128, 150);
  ASSERT_TRUE(guard_->After(1).ok());
  EXPECT_EQ(marks.written, 150);
  EXPECT_EQ(marks.written_by_results, 150);
  guard_->Begin();  // the next run writes more of it
  Write(0, 64);
  Write(64, 192);
  ASSERT_TRUE(guard_->After(0).ok());
  EXPECT_EQ(marks.written, 192);
  EXPECT_EQ(marks.written_by_results, 150);
  EXPECT_EQ(marks.workspaces[0].written, 128);
}

TEST_F(PoisonTest, AnUnusedWorkspaceCountsAsNothingWritten) {
  Write(0, 64);
  ASSERT_TRUE(guard_->After(0).ok());
  EXPECT_EQ(guard_->marks().written, 64);
  EXPECT_EQ(guard_->marks().planned_touch, 192);
  EXPECT_EQ(guard_->marks().workspaces[0].written, 0);
}

TEST_F(PoisonTest, AWorkspaceKeepsNothing) {
  Write(0, 192);
  ASSERT_TRUE(guard_->After(0).ok());
  EXPECT_EQ(arena_[0], 1);
  for (size_t i = 64; i < 192; ++i) EXPECT_EQ(static_cast<unsigned char>(arena_[i]), 0xFF) << i;
  Write(128, 192);
  EXPECT_TRUE(guard_->After(1).ok());
}

TEST_F(PoisonTest, WritingBehindAWorkspaceIsFound) {
  Write(0, 193);
  const Status status = guard_->After(0);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("(make) wrote byte 192"));
}

TEST_F(PoisonTest, WritingWhereTheWorkspaceWasIsFound) {
  Write(0, 192);
  ASSERT_TRUE(guard_->After(0).ok());
  Write(100, 192);
  EXPECT_THAT(guard_->After(1).message(), HasSubstr("(use) wrote byte 100"));
}

}  // namespace
}  // namespace hyper::runtime
