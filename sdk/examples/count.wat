(module
  (type (;0;) (func (result i32)))
  (type (;1;) (func (param i32) (result i32)))
  (type (;2;) (func (param i32 i32) (result i32)))
  (table (;0;) 1 1 funcref)
  (memory (;0;) 18)
  (global (;0;) (mut i32) i32.const 1048576)
  (export "memory" (memory 0))
  (export "dcs_operator" (func 0))
  (export "dcs_start" (func 1))
  (export "dcs_step" (func 2))
  (func (;0;) (type 0) (result i32)
    i32.const 0
    i32.const 65536
    i32.store offset=1048592
    i32.const 0
    i32.const 1048672
    i32.store offset=1048588
    i32.const 0
    i32.const 65536
    i32.store offset=1048584
    i32.const 0
    i32.const 1048672
    i32.store offset=1048580
    i32.const 0
    i32.const 1
    i32.store offset=1048576
    i32.const 1048576
  )
  (func (;1;) (type 1) (param i32) (result i32)
    local.get 0
    i32.const 0
    i32.ne
  )
  (func (;2;) (type 2) (param i32 i32) (result i32)
    (local i32 i64 i32 i32 i64)
    i32.const 0
    local.set 2
    i32.const 0
    i64.load offset=1114208
    local.set 3
    block ;; label = @1
      local.get 0
      i32.eqz
      br_if 0 (;@1;)
      local.get 0
      i32.const 3
      i32.and
      local.set 4
      block ;; label = @2
        block ;; label = @3
          local.get 0
          i32.const 4
          i32.lt_u
          br_if 0 (;@3;)
          local.get 0
          i32.const -4
          i32.and
          local.set 5
          i32.const 0
          local.set 2
          loop ;; label = @4
            local.get 3
            local.get 2
            i32.const 1048672
            i32.add
            i32.load8_u
            i32.const 10
            i32.eq
            i64.extend_i32_u
            i64.add
            local.get 2
            i32.const 1048673
            i32.add
            i32.load8_u
            i32.const 10
            i32.eq
            i64.extend_i32_u
            i64.add
            local.get 2
            i32.const 1048674
            i32.add
            i32.load8_u
            i32.const 10
            i32.eq
            i64.extend_i32_u
            i64.add
            local.get 2
            i32.const 1048675
            i32.add
            i32.load8_u
            i32.const 10
            i32.eq
            i64.extend_i32_u
            i64.add
            local.set 3
            local.get 5
            local.get 2
            i32.const 4
            i32.add
            local.tee 2
            i32.ne
            br_if 0 (;@4;)
          end
          local.get 4
          i32.eqz
          br_if 1 (;@2;)
        end
        local.get 2
        i32.const 1048672
        i32.add
        local.set 2
        loop ;; label = @3
          local.get 3
          local.get 2
          i32.load8_u
          i32.const 10
          i32.eq
          i64.extend_i32_u
          i64.add
          local.set 3
          local.get 2
          i32.const 1
          i32.add
          local.set 2
          local.get 4
          i32.const -1
          i32.add
          local.tee 4
          br_if 0 (;@3;)
        end
      end
      i32.const 0
      local.get 3
      i64.store offset=1114208
    end
    i32.const 0
    i32.const 0
    i64.load offset=1114216
    local.get 0
    i64.extend_i32_u
    i64.add
    local.tee 6
    i64.store offset=1114216
    block ;; label = @1
      local.get 1
      i32.eqz
      br_if 0 (;@1;)
      i32.const 0
      local.get 6
      i64.store8 offset=1048623
      i32.const 0
      local.get 3
      i64.store8 offset=1048615
      i32.const 0
      i32.const 16
      i32.store offset=1048604
      i32.const 0
      local.get 6
      i64.const 8
      i64.shr_u
      i64.store8 offset=1048622
      i32.const 0
      local.get 6
      i64.const 16
      i64.shr_u
      i64.store8 offset=1048621
      i32.const 0
      local.get 6
      i64.const 24
      i64.shr_u
      i64.store8 offset=1048620
      i32.const 0
      local.get 6
      i64.const 32
      i64.shr_u
      i64.store8 offset=1048619
      i32.const 0
      local.get 6
      i64.const 40
      i64.shr_u
      i64.store8 offset=1048618
      i32.const 0
      local.get 6
      i64.const 48
      i64.shr_u
      i64.store8 offset=1048617
      i32.const 0
      local.get 6
      i64.const 56
      i64.shr_u
      i64.store8 offset=1048616
      i32.const 0
      local.get 3
      i64.const 8
      i64.shr_u
      i64.store8 offset=1048614
      i32.const 0
      local.get 3
      i64.const 16
      i64.shr_u
      i64.store8 offset=1048613
      i32.const 0
      local.get 3
      i64.const 24
      i64.shr_u
      i64.store8 offset=1048612
      i32.const 0
      local.get 3
      i64.const 32
      i64.shr_u
      i64.store8 offset=1048611
      i32.const 0
      local.get 3
      i64.const 40
      i64.shr_u
      i64.store8 offset=1048610
      i32.const 0
      local.get 3
      i64.const 48
      i64.shr_u
      i64.store8 offset=1048609
      i32.const 0
      local.get 3
      i64.const 56
      i64.shr_u
      i64.store8 offset=1048608
    end
    i32.const 0
    local.get 0
    i32.store offset=1048600
    i32.const 0
    local.get 0
    i32.store offset=1048596
    local.get 1
    i32.const 0
    i32.ne
  )
)
