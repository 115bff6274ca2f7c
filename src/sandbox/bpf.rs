//! Programs of seccomp's virtual machine: for each system call, tests of its arguments and an answer.

use std::mem::offset_of;

/// What the kernel does with a call, as seccomp(2) numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeccompAction {
    /// It is made.
    Allow,
    /// It fails with this error number; 0 is a success that did nothing.
    Errno(i32),
    /// Whoever holds the filter's listener answers.
    Notify,
    /// The process is killed.
    Kill,
}

impl SeccompAction {
    fn code(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Errno(number) => libc::SECCOMP_RET_ERRNO | (number.unsigned_abs() & 0xfff),
            Self::Notify => libc::SECCOMP_RET_USER_NOTIF,
            Self::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

/// Where every condition holds, that is the answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArgRule<'a>(pub(super) &'a [ArgCondition], pub(super) SeccompAction);

/// Of a call's argument, by number, masked with the first value: it is the second. Only the lower half of an argument is
/// looked at, for those that matter are ints.
pub(super) type ArgCondition = (usize, u32, u32);

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const GREATER: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// A program that grows.
#[derive(Debug, Default)]
pub(super) struct BpfProgram(Vec<u8>);

impl BpfProgram {
    /// Begins one that kills on another architecture than `arch`, and knows no call with a number above `last`.
    pub(super) fn new(arch: u32, last: u32) -> Self {
        let mut program = Self::default();
        program.step(LOAD, 0, 0, offset_of!(libc::seccomp_data, arch) as u32);
        program.step(EQUAL, 1, 0, arch);
        program.step(RETURN, 0, 0, SeccompAction::Kill.code());
        program.step(LOAD, 0, 0, offset_of!(libc::seccomp_data, nr) as u32);
        program.step(GREATER, 0, 1, last);
        program.step(RETURN, 0, 0, SeccompAction::Errno(libc::ENOSYS).code());
        program
    }

    /// Answers a call: by the first test that holds, else by `otherwise`.
    pub(super) fn add_call(&mut self, call: libc::c_long, tests: &[ArgRule<'_>], otherwise: SeccompAction) {
        let mut body = Self::default();
        for ArgRule(conditions, answer) in tests {
            for (at, (argument, mask, value)) in conditions.iter().enumerate() {
                let lower = if cfg!(target_endian = "big") { 4 } else { 0 };
                body.step(LOAD, 0, 0, (offset_of!(libc::seccomp_data, args) + 8 * argument + lower) as u32);
                body.step(AND, 0, 0, *mask);
                // Where it doesn't hold, past the other conditions, three steps each, and the answer.
                body.step(EQUAL, 0, 3 * (conditions.len() - at - 1) as u8 + 1, *value);
            }
            body.step(RETURN, 0, 0, answer.code());
        }
        body.step(RETURN, 0, 0, otherwise.code());
        let length = body.0.len() / size_of::<libc::sock_filter>();
        debug_assert!(length <= usize::from(u8::MAX), "a jump is at most 255 steps");
        self.step(EQUAL, 0, length as u8, call as u32);
        self.0.append(&mut body.0);
    }

    /// Ends it: every other call is made.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.step(RETURN, 0, 0, SeccompAction::Allow.code());
        self.0
    }

    /// One `struct sock_filter`.
    fn step(&mut self, code: u32, then: u8, otherwise: u8, value: u32) {
        self.0.extend((code as u16).to_ne_bytes());
        self.0.extend([then, otherwise]);
        self.0.extend(value.to_ne_bytes());
    }
}
