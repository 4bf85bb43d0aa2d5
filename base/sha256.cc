#include "base/sha256.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <openssl/evp.h>

namespace hyper {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  HYPER_CHECK(
      state_->context != nullptr && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1,
      "SHA-256 is not available");
}

Sha256::~Sha256() = default;

void Sha256::Update(std::span<const std::byte> data) {
  HYPER_CHECK(EVP_DigestUpdate(state_->context, data.data(), data.size()) == 1, "SHA-256 failed");
}

std::string Sha256::FinishHex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  HYPER_CHECK(EVP_DigestFinal_ex(state_->context, digest, &length) == 1, "SHA-256 failed");
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

std::string Sha256Hex(std::span<const std::byte> data) {
  Sha256 hash;
  hash.Update(data);
  return hash.FinishHex();
}

std::string Sha256Hex(std::string_view data) {
  return Sha256Hex(std::as_bytes(std::span(data.data(), data.size())));
}

Result<std::string> HashFile(FileSystem* fs, const std::string& path, int64_t bytes,
                             const std::function<Status(std::span<const std::byte>)>& consume) {
  constexpr int64_t kPiece = 1 << 20;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(bytes, kPiece)));
  Sha256 hash;
  for (int64_t offset = 0; offset < bytes; offset += kPiece) {
    const std::span<std::byte> piece(buffer.data(),
                                     static_cast<size_t>(std::min(kPiece, bytes - offset)));
    HYPER_RETURN_IF_ERROR(fs->ReadAt(path, offset, piece));
    hash.Update(piece);
    if (consume) HYPER_RETURN_IF_ERROR(consume(piece));
  }
  return hash.FinishHex();
}

}  // namespace hyper
