
#ifdef __cplusplus
}
#endif

#endif /* DCS_H */
