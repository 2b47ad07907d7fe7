//! Kernel modules: what each depends on, and what of its file a guest has no use for.
//! [Linux: include/linux/module_signature.h; ELF-64 Object File Format, 2 and 4]

/// The end of a file that has a signature behind the module, after the 12 bytes that end with the signature's length.
const SIGNED: &[u8] = b"~Module signature appended~\n";
const SIGNATURE_INFO: usize = 12;

/// Returns the modules that a module depends on: the text `depends=a,b` with a zero at the end.
pub(crate) fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let start = module.windows(KEY.len()).position(|window| window == KEY).map(|at| at + KEY.len());
    let list = start.and_then(|start| module[start..].split(|byte| *byte == 0).next()).unwrap_or_default();
    let list = String::from_utf8_lossy(list);
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns a module without its signature and without its types for BPF: under emulation the kernel spends more time on
/// those than on all else of a small module.
pub(crate) fn spared(mut module: Vec<u8>) -> Vec<u8> {
    if let Some(length) = unsigned(&module) {
        module.truncate(length);
    }
    empty_types(&mut module);
    module
}

/// Returns the length of a module without its signature; `None` if it has none.
fn unsigned(module: &[u8]) -> Option<usize> {
    let rest = module.strip_suffix(SIGNED)?;
    let length = u32::from_be_bytes(*rest.last_chunk()?);
    rest.len().checked_sub(SIGNATURE_INFO)?.checked_sub(length as usize)
}

/// Makes the section `.BTF` empty, which the kernel takes for none.
fn empty_types(module: &mut [u8]) -> Option<()> {
    let (table, size) = (number(module, 0x28, 8)?, number(module, 0x3a, 2)?);
    let (count, names) = (number(module, 0x3c, 2)?, number(module, 0x3e, 2)?);
    let header = |section: usize| table.checked_add(section * size);
    let names = number(module, header(names)?.checked_add(0x18)?, 8)?;
    for section in (0..count).map_while(header) {
        let name = names.checked_add(number(module, section, 4)?)?;
        if module.get(name..)?.starts_with(b".BTF\0") {
            module.get_mut(section + 0x20..section + 0x28)?.fill(0);
        }
    }
    Some(())
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let mut number = [0; 8];
    number[..size].copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
    usize::try_from(u64::from_le_bytes(number)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_s_dependencies_are_listed() {
        assert_eq!(needs(b"\x7fELF\0depends=vfio,irqbypass\0x"), ["vfio", "irqbypass"]);
        assert!(needs(b"\0depends=\0").is_empty() && needs(b"no such text").is_empty());
    }

    #[test]
    fn a_signature_is_taken_off_and_what_has_none_stays() {
        let signed = [b"a module" as &[u8], b"its signature", &[0; 8], &13u32.to_be_bytes(), SIGNED].concat();
        assert_eq!(spared(signed.clone()), b"a module");
        for bad in [b"a module" as &[u8], SIGNED, &signed[22..]] {
            assert_eq!(spared(bad.to_vec()), bad);
        }
    }

    #[test]
    fn types_become_empty_and_nothing_else_changes() {
        // Names at 0x40, then three sections: names, .BTF, .BTF_ids.
        let names = b"\0.BTF\0.BTF_ids\0.\0";
        let mut module = vec![0; 0x40];
        module.extend(names);
        let table = module.len();
        for (name, offset) in [(0u32, 0x40u64), (1, 7), (6, 9)] {
            let mut section = [0; 0x40];
            section[..4].copy_from_slice(&name.to_le_bytes());
            section[0x18..0x20].copy_from_slice(&offset.to_le_bytes());
            section[0x20..0x28].fill(5);
            module.extend(section);
        }
        module[0x28..0x30].copy_from_slice(&(table as u64).to_le_bytes());
        (module[0x3a], module[0x3c], module[0x3e]) = (0x40, 3, 0);
        let mut wanted = module.clone();
        wanted[table + 0x60..table + 0x68].fill(0);
        assert_eq!(spared(module.clone()), wanted);
        for length in 0..module.len() {
            assert_eq!(spared(module[..length].to_vec()).len(), length);
        }
    }
}
