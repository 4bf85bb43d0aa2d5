// A fuzz target reads one hostile input the way the programs read a file. Built twice: with
// libFuzzer (preset fuzz, scripts/fuzz.sh) and, for every test run, with driver.cc, which replays
// the corpus and a bounded number of mutations of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

// libFuzzer's name. Returns 0; a finding is a crash, a sanitizer's report, a failed Require, an
// input that takes too long or asks for too much memory at once.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace hyper::fuzz {

// Ends the process with `what` unless `holds`: the finding of a target itself.
void Require(bool holds, const char* what);

// Formats that are folders are fuzzed as one text: a line "file NAME BYTES", the bytes, a newline,
// and so on. What is no such text becomes no files.
std::map<std::string, std::string> Unpack(const std::string& archive);
std::string Pack(const std::map<std::string, std::string>& files);

// A folder of this process, empty now; on a memory file system where there is one.
std::string FreshFolder();
// Writes files below `folder`; names that leave it are left out.
void WriteFiles(const std::string& folder, const std::map<std::string, std::string>& files);

}  // namespace hyper::fuzz
