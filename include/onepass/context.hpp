// Context: where an op runs. Cheap to copy; safe to share between threads.
#pragma once

namespace onepass {

class Context {
 public:
  // On the calling thread and up to threads − 1 helpers; 0: as many as the machine has cores.
  static Context cpu(int threads = 0) { return Context(threads); }

  int threads() const { return threads_; }

 private:
  explicit Context(int threads) : threads_(threads) {}
  int threads_;
};

}  // namespace onepass
