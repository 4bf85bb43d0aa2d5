// Each rule of the validator, broken alone.
#include "codegen/validate.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/codegen/codegen_fixture.h"

namespace hyper::codegen {
namespace {

using program::Program;
using ::testing::HasSubstr;

constexpr int64_t kHuge = int64_t{1} << 62;

class ValidateTest : public ::testing::Test {
 protected:
  Status Validate() { return ValidateProgram(program_, context_); }
  void Broken(const std::function<void(Program&)>& edit, const std::string& message) {
    Program program = program_;
    edit(program);
    const Status status = ValidateProgram(program, context_);
    EXPECT_FALSE(status.ok()) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
  static program::Instruction* First(Program& p) {
    return p.mutable_subprograms(0)->mutable_instructions(0);
  }
  static program::Operand* Operand(Program& p) { return First(p)->mutable_operands(0); }

  void SetUp() override {
    for (program::Slot& slot : *program_.mutable_slots()) {
      if (slot.storage() != program::PARAMETER && slot.storage() != program::CONSTANT) continue;
      slot.set_data_bytes(slot.place().end() - slot.place().begin());
    }
    ASSERT_TRUE(Validate().ok()) << Validate().ToString();
  }
  Program program_ = hyper::testing::MakeToy().program;
  ProgramContext context_{.tensors_bytes = 1 << 20, .has_kernels = true};
};

TEST_F(ValidateTest, Header) {
  Broken([](Program& p) { p.set_format_version(2); }, "format version 2");
  Broken([](Program& p) { p.set_target("abacus"); }, "target 'abacus'");
  Broken([](Program& p) { p.set_arena_bytes(-1); }, "arena of -1");
  Broken([](Program& p) { p.set_arena_bytes(kHuge); }, "arena of");
  Broken([](Program& p) { p.set_micro_batch(-4); }, "micro-batch");
  Broken([](Program& p) { p.set_compute_dtype(program::I8); }, "compute dtype");
  Broken([](Program& p) { p.set_threads(-1); }, "planned for -1 threads");
}

TEST_F(ValidateTest, Regions) {
  Broken([](Program& p) { p.mutable_regions(1)->set_begin(0); }, "region GRADIENT");
  Broken([](Program& p) { p.mutable_regions(10)->set_end(kHuge); }, "region TEMPORARY");
  Broken([](Program& p) { *p.add_regions() = p.regions(0); }, "unknown or twice");
  Broken([](Program& p) { p.mutable_regions(0)->set_storage(static_cast<program::Storage>(77)); },
         "unknown or twice");
}

TEST_F(ValidateTest, Operands) {
  Broken([](Program& p) { Operand(p)->set_dtype(static_cast<program::DType>(99)); },
         "unknown element type");
  Broken([](Program& p) { Operand(p)->set_access(static_cast<program::Access>(99)); },
         "unknown access");
  Broken([](Program& p) { Operand(p)->add_dims(1); }, "3 dims and 2 strides");
  Broken([](Program& p) { Operand(p)->set_dims(0, -1); }, "negative extent");
  Broken([](Program& p) { Operand(p)->set_dims(0, kHuge); }, "elements");
  Broken([](Program& p) { Operand(p)->set_strides(0, kHuge); }, "strides reach");
  Broken([](Program& p) { Operand(p)->set_strides(0, INT64_MIN); }, "strides reach");
  Broken([](Program& p) { Operand(p)->set_offset(-4); }, "offset -4");
  Broken([](Program& p) { Operand(p)->set_offset(kHuge); }, "offset");
  Broken([](Program& p) { Operand(p)->set_offset(Operand(p)->offset() + 1); }, "not a multiple");
  Broken([](Program& p) { Operand(p)->set_end(Operand(p)->end() + 4); }, "said to touch");
  Broken(
      [](Program& p) {
        program::Operand* o = Operand(p);
        const int64_t shift = p.arena_bytes() - o->begin() - 4;
        o->set_offset(o->offset() + shift);
        o->set_begin(o->begin() + shift);
        o->set_end(o->end() + shift);
      },
      "lie in no region");
  Broken(
      [](Program& p) {
        program::Operand* o = p.mutable_slots(0)->mutable_place();
        o->set_strides(0, 0);
        o->set_end(o->begin() + o->dims(1) * 4);
      },
      "share a place");
}

TEST_F(ValidateTest, Slots) {
  Broken([](Program& p) { *p.add_slots() = p.slots(0); }, "there twice");
  Broken([](Program& p) { p.mutable_slots(0)->set_storage(program::GRADIENT); }, "region GRADIENT");
  Broken([](Program& p) { p.mutable_slots(0)->set_data_bytes(4); }, "4 bytes of data");
  Broken([](Program& p) { p.mutable_slots(0)->set_data_bytes(0); }, "0 bytes of data");
  Broken([](Program& p) { p.mutable_slots(0)->set_data_offset(1 << 20); }, "tensors.bin");
  Broken([](Program& p) { p.mutable_slots(0)->set_data_offset(INT64_MAX); }, "tensors.bin");
  Broken([](Program& p) { p.mutable_slots(0)->set_data_offset(-64); }, "tensors.bin");
}

TEST_F(ValidateTest, Buckets) {
  Broken([](Program& p) { p.mutable_buckets(0)->set_end(kHuge); }, "no range of gradients");
  Broken([](Program& p) { p.mutable_buckets(0)->set_begin(p.buckets(0).begin() + 2); },
         "no range of gradients");
  Broken([](Program& p) { p.mutable_buckets(0)->set_begin(0); }, "no range of gradients");
  Broken([](Program& p) { *p.add_buckets() = p.buckets(0); }, "buckets overlap");
}

TEST_F(ValidateTest, Instructions) {
  Broken([](Program& p) { First(p)->clear_library(); }, "no kernel");
  Broken([](Program& p) { First(p)->mutable_library()->clear_primitive(); }, "without a name");
  Broken([](Program& p) { First(p)->mutable_generated(); }, "without a name");
  Broken([](Program& p) { First(p)->mutable_marker()->set_bucket(1); }, "marker of bucket 1 of 1");
  Broken([](Program& p) { First(p)->mutable_marker()->set_bucket(-1); }, "marker of bucket -1");
  Broken([](Program& p) { First(p)->mutable_reference(); }, "without an op");
  Broken([](Program& p) { First(p)->mutable_library()->add_attributes(); }, "no value");
  Broken(
      [](Program& p) {
        program::Attribute* a = First(p)->mutable_library()->add_attributes();
        a->set_tensor_value("123");
        a->add_tensor_dims(1);
      },
      "another size");
  context_.has_kernels = false;
  EXPECT_THAT(Validate().message(), HasSubstr("no kernels.so"));
}

// Each attribute of each call: gone, of another kind, and one that the op does not have.
TEST_F(ValidateTest, CallsFitTheRecordsOfTheirOps) {
  int checked = 0;
  for (int s = 0; s < program_.subprograms_size(); ++s) {
    for (int i = 0; i < program_.subprograms(s).instructions_size(); ++i) {
      const program::Instruction& instruction = program_.subprograms(s).instructions(i);
      if (!instruction.has_library() && !instruction.has_reference()) continue;
      const auto attributes = [&](Program& p) {
        program::Instruction* at = p.mutable_subprograms(s)->mutable_instructions(i);
        return at->has_library() ? at->mutable_library()->mutable_attributes()
                                 : at->mutable_reference()->mutable_attributes();
      };
      Program copy = program_;
      for (int a = 0; a < attributes(copy)->size(); ++a) {
        const std::string name = attributes(copy)->Get(a).name();
        ++checked;
        Broken([&](Program& p) { attributes(p)->Mutable(a)->set_name(name + "x"); }, name);
        Broken(
            [&](Program& p) {
              program::Attribute* changed = attributes(p)->Mutable(a);
              if (changed->has_string_value()) {
                changed->set_bool_value(true);
              } else {
                changed->set_string_value("other");
              }
            },
            name);
        Broken(
            [&](Program& p) {
              if (attributes(p)->Get(a).has_string_value()) {
                attributes(p)->Mutable(a)->set_string_value("no such thing");
              } else {
                attributes(p)->Add()->set_name("more");
                attributes(p)->rbegin()->set_bool_value(true);
              }
            },
            "op '");
      }
    }
  }
  EXPECT_GT(checked, 0);
  Broken([](Program& p) { First(p)->mutable_library()->set_op("dott"); }, "unknown core op 'dott'");
  Broken([](Program& p) { First(p)->mutable_library()->clear_attributes(); }, "is missing");
}

TEST_F(ValidateTest, WorkspacesStandLast) {
  const auto workspace = [](Program& p, int operand) {
    First(p)->mutable_operands(operand)->set_access(program::WORKSPACE);
  };
  const int last = program_.subprograms(0).instructions(0).operands_size() - 1;
  ASSERT_EQ(program_.subprograms(0).instructions(0).operands(last).access(), program::WORKSPACE);
  Broken([&](Program& p) { workspace(p, 0); }, "a workspace must be the last operand");
  Broken(
      [&](Program& p) {
        First(p)->mutable_operands(last)->set_access(program::READ);
        workspace(p, 0);
      },
      "a workspace must be the last operand");
}

TEST_F(ValidateTest, SubPrograms) {
  Broken([](Program& p) { p.mutable_subprograms(0)->set_name("eval"); }, "used twice");
  Broken([](Program& p) { p.mutable_subprograms(0)->set_temporary_peak(kHuge); }, "temporaries");
  Broken([](Program& p) { p.add_losses()->set_weight(NAN); }, "loss");
}

TEST(TouchedBytesTest, CoversNegativeAndBroadcastStrides) {
  using Dims = std::vector<int64_t>;
  EXPECT_EQ(*TouchedBytes(Dims{}, Dims{}, 4), (std::pair<int64_t, int64_t>(0, 4)));
  EXPECT_EQ(*TouchedBytes(Dims{3, 2}, Dims{-2, 1}, 8), (std::pair<int64_t, int64_t>(-32, 16)));
  EXPECT_EQ(*TouchedBytes(Dims{5, 2}, Dims{0, 1}, 2), (std::pair<int64_t, int64_t>(0, 4)));
  EXPECT_EQ(*TouchedBytes(Dims{5, 0}, Dims{9, 9}, 2), (std::pair<int64_t, int64_t>(0, 0)));
}

}  // namespace
}  // namespace hyper::codegen
