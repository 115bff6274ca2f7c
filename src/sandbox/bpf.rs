//! Writes seccomp filters in BPF: for each system call, conditions on its arguments and an action.

use std::mem::offset_of;

/// What the kernel does with a system call, see seccomp(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeccompAction {
    /// Lets it through.
    Allow,
    /// Makes it fail with this error number; 0 pretends success.
    Errno(i32),
    /// Asks the process that holds the filter's listener.
    Notify,
    /// Kills the process.
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

/// The action to take if all conditions hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArgRule<'a>(pub(super) &'a [ArgCondition], pub(super) SeccompAction);

/// `(argument, mask, value)`: the argument with this number, masked, equals the value. Only the lower half of an argument is
/// compared, because the arguments that matter are ints.
pub(super) type ArgCondition = (usize, u32, u32);

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const GREATER: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// A filter that is being written.
#[derive(Debug, Default)]
pub(super) struct BpfProgram(Vec<u8>);

impl BpfProgram {
    /// Starts a filter that kills the process on another architecture than `arch`, and rejects calls with a number above `last`
    /// as unknown.
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

    /// Adds a call: the action of the first rule whose conditions hold, or else `otherwise`.
    pub(super) fn add_call(&mut self, call: libc::c_long, rules: &[ArgRule<'_>], otherwise: SeccompAction) {
        let mut body = Self::default();
        for ArgRule(conditions, action) in rules {
            for (at, (argument, mask, value)) in conditions.iter().enumerate() {
                let lower = if cfg!(target_endian = "big") { 4 } else { 0 };
                body.step(LOAD, 0, 0, (offset_of!(libc::seccomp_data, args) + 8 * argument + lower) as u32);
                body.step(AND, 0, 0, *mask);
                // Otherwise skip the remaining conditions, three steps each, and the action.
                body.step(EQUAL, 0, 3 * (conditions.len() - at - 1) as u8 + 1, *value);
            }
            body.step(RETURN, 0, 0, action.code());
        }
        body.step(RETURN, 0, 0, otherwise.code());
        let length = body.0.len() / size_of::<libc::sock_filter>();
        debug_assert!(length <= usize::from(u8::MAX), "a jump is at most 255 steps");
        self.step(EQUAL, 0, length as u8, call as u32);
        self.0.append(&mut body.0);
    }

    /// Adds calls with the same action, whatever their arguments are.
    pub(super) fn add_calls(&mut self, calls: &[libc::c_long], action: SeccompAction) {
        calls.iter().for_each(|call| self.add_call(*call, &[], action));
    }

    /// Adds a call that is denied unless all conditions of one of the lists hold.
    pub(super) fn allow_only(&mut self, call: libc::c_long, allowed: &[impl AsRef<[ArgCondition]>]) {
        let rules = allowed.iter().map(|conditions| ArgRule(conditions.as_ref(), SeccompAction::Allow));
        self.add_call(call, &rules.collect::<Vec<_>>(), SeccompAction::Errno(libc::EPERM));
    }

    /// Ends the filter: all other calls are allowed.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.step(RETURN, 0, 0, SeccompAction::Allow.code());
        self.0
    }

    /// Appends one `struct sock_filter`.
    fn step(&mut self, code: u32, then: u8, otherwise: u8, value: u32) {
        self.0.extend((code as u16).to_ne_bytes());
        self.0.extend([then, otherwise]);
        self.0.extend(value.to_ne_bytes());
    }
}
